"""Receivers of an SOS can recognise it: in the script, at the URL, in the list and in the log."""

from __future__ import annotations

import json
from pathlib import Path

from tests.hub.test_journey import receiver
from tests.processes import agent, sky, until


def test_hooks_and_log_distinguish_sos_from_similar_text(tmp_path: Path) -> None:
    """A real agent with its script and webhook. A text that only looks like an SOS is not one."""
    with receiver() as hooked, sky(tmp_path, latency=0.1) as above:
        settings = {
            "inbound-hook": 'echo "hook: ${AGENT_PAYLOAD_SOS:-none} $AGENT_PAYLOAD"',
            "webhook-address": hooked.url,
        }
        with agent(tmp_path, settings) as kit:
            above.type('mt {"sos":true}')
            plain = kit.expect("hook: ")
            assert plain.startswith("hook: none ")
            above.type("mt-sos help")
            urgent = kit.expect("hook: ")
            assert urgent.startswith("hook: 1 ")
            (event,) = json.loads(urgent.partition(" ")[2][2:])["payloads"][0]["events"]
            assert (event["content"], event["sos"]) == ("help", True)
            listed = kit.call("GET", "/api/inbound").body["payloads"]
            marks = [each["body"]["payloads"][0]["events"][0].get("sos") for each in listed]
            assert marks == [True, None]
            assert "an SOS has come from" in "\n".join(kit.output())
            until(lambda: len(hooked.headers) == 2)
    assert [headers.get("fieldagent-sos") for headers in hooked.headers] == [None, "1"]
