"""An orderly stop, as at each upgrade, while a hook runs: the hook finishes and runs once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.processes import Agent, agent, sky

SLOW = "cat >/dev/null; echo begun; sleep 2; echo done"
NEVER = "cat >/dev/null; echo begun; sleep 1000"


def hooks(kit: Agent) -> Any:
    (payload,) = kit.call("GET", "/api/inbound").body["payloads"]
    return payload["hooks"]["script"]


def test_running_hook_finishes_on_stop_and_is_not_called_again(tmp_path: Path) -> None:
    with sky(tmp_path) as above:
        with agent(tmp_path, {"inbound-hook": SLOW}) as kit:
            above.type("mt hello")
            kit.expect("begun")
            assert kit.stop() == 0
            assert "done" in kit.lines
        with agent(tmp_path, {"inbound-hook": SLOW}) as kit:
            assert hooks(kit) == {"state": "handed", "attempts": 1, "reason": ""}
            # The next payload is a new one: the first hook does not start again.
            above.type("mt-data 00")
            kit.expect("done")
            assert kit.lines.count("begun") == 1


def test_hook_that_does_not_finish_on_stop_is_called_again(tmp_path: Path) -> None:
    with sky(tmp_path) as above:
        with agent(tmp_path, {"inbound-hook": NEVER}) as kit:
            above.type("mt hello")
            kit.expect("begun")
            assert kit.stop() == 0
        with agent(tmp_path, {"inbound-hook": SLOW}) as kit:
            kit.expect("done")
