"""Every call of the agent to its disk fails in turn, once or from there on: real processes.

What was acknowledged is there after it and arrives, under one number; nothing is set aside; people
are told in words, and the exit code is that of disk trouble where it ends.
"""

from __future__ import annotations

import errno
import json
import re
from collections import Counter
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from tests import disk
from tests.breaking import Put, environment
from tests.disk import Fault
from tests.processes import MODULE, Agent, Answer, NeverReady, Running, agent, ended, sky, until

QUICK = [
    Put("fieldagent.agent.journal.journal:FULL_PAUSE", 0.2),
    Put("fieldagent.system.supervisor:PAUSES", [0.05]),
]
TEXTS = [*(f"text {number}" for number in range(4)), "SOS here", "last"]


def hooked(home: Path) -> dict[str, str]:
    return {"inbound-hook": f"cat >>{home}/came && echo handed"}


def post(kit: Agent, text: str) -> Answer | None:
    """None where nobody answered. A key makes it safe to post it again."""
    body = {"message": {"content": text}, "priority": 100 if text == "SOS here" else 12}
    try:
        return kit.call("POST", "/api/package/async", body, **{"Idempotency-Key": text})
    except (OSError, HTTPException):
        return None


def use(kit: Agent) -> dict[str, int]:
    """The ids of what was acknowledged. Returns once all is done, or cannot be."""
    accepted = {}
    for text in TEXTS:
        answer = post(kit, text)
        if answer is not None and answer.status == 202:
            accepted[text] = answer.body["id"]
        elif answer is not None:
            assert answer.status in (503, 507), answer
            assert "disk" in answer.body["detail"], answer
    until(lambda: kit.process.poll() is not None or done(kit, accepted))
    return accepted


def done(kit: Agent, accepted: dict[str, int]) -> bool:
    with suppress(OSError, HTTPException):
        if kit.call("GET", "/api/status").body["journal"]["full"]:
            return True
        found = [kit.call("GET", f"/api/package/{id_}").body for id_ in accepted.values()]
        handed = kit.call("GET", "/api/inbound?state=handed").body["payloads"]
        return bool(handed) and all(each["status"] for each in found)
    return False


def run_with(home: Path, above: Running, **env: str) -> tuple[dict[str, int], str, int]:
    """What one run acknowledged, what it said, and its exit code."""
    above.type("mt hello")
    try:
        with agent(home, hooked(home), MODULE, **env) as kit:
            accepted = use(kit)
            code = ended(kit)
            return accepted, "\n".join(kit.lines), code
    except NeverReady as error:
        return {}, str(error), error.code


def survive(home: Path, library: Path, fault: Fault) -> bool:
    """Whether it came to the fault at all."""
    state = home / "state"
    quick = environment(home, *QUICK)
    with sky(home, 0.02) as above:
        accepted, told, code = run_with(home, above, **quick, **disk.faulty(library, state, fault))
        assert "Traceback" not in told, told
        assert code in (0, 74), told
        if code:
            assert re.search("the disk|cannot be used: .*left as it is", told), told
        assert not list(state.glob("*.bad"))
        with agent(home, hooked(home), MODULE, **quick) as kit:
            for text in TEXTS:
                answer = post(kit, text)
                assert answer is not None
                assert answer.status == 202, answer
                assert answer.body["id"] == accepted.setdefault(text, answer.body["id"])
            until(lambda: done(kit, accepted))
            found = [kit.call("GET", f"/api/package/{id_}").body for id_ in accepted.values()]
            assert [each["status"] for each in found] == ["Delivered"] * len(TEXTS)
            assert kit.call("GET", "/api/status").body["journal"]["losses"] == []
            assert kit.stop() == 0
        arrived = Counter(
            text
            for line in above.output()
            if "(again)" not in line
            for text in TEXTS
            if text in line
        )
        assert arrived == Counter(TEXTS)
    came = [json.loads(line)["requestId"] for line in (home / "came").read_text().splitlines()]
    assert len(set(came)) == 1
    assert len(came) <= 2
    assert not list(state.glob("*.bad"))
    return disk.has_failed(state)


def calls_of_a_run(home: Path, library: Path) -> Counter[str]:
    """How often a run without faults makes each call."""
    home.mkdir()
    record = home / "record"
    with sky(home, 0.02) as above:
        _, told, code = run_with(home, above, **disk.recorded(library, home / "state", record))
    assert code == 0, told
    return disk.counts(record)


EIO, ENOSPC = errno.EIO, errno.ENOSPC
SOME = [
    *(Fault("sync", first) for first in (1, 7, 9, 12, 20)),
    *(Fault("write", first, ENOSPC) for first in (3, 40, 130)),
    *(Fault("write", first) for first in (90, 150)),
    Fault("make", 3),
    Fault("truncate", 2),
    Fault("unlink", 2),
    Fault("any", 150, EIO, times=0),
    Fault("any", 160, ENOSPC, times=0),
]
"""In the start, at work and in the end of a run."""


@pytest.mark.parametrize("fault", SOME, ids=str)
def test_a_disk_that_fails_costs_nothing_that_was_acknowledged(
    tmp_path: Path, disk_library: Path, fault: Fault
) -> None:
    assert survive(tmp_path, disk_library, fault)


@pytest.mark.long
@pytest.mark.parametrize("number", [EIO, ENOSPC], ids=["EIO", "ENOSPC"])
def test_every_call_to_the_disk_fails_in_turn(
    tmp_path: Path, disk_library: Path, number: int
) -> None:
    """And at some of them the disk fails for good."""
    counted = calls_of_a_run(tmp_path / "counted", disk_library)
    disk.fail_in_turn(
        tmp_path, counted, number, lambda home, fault: survive(home, disk_library, fault)
    )
