"""A team at the real OpenTAKServer and a person at a kit. The hub fetches its certificate there."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.extensions.tak import open_tak_server
from tests.extensions.tak.open_tak_server import NAME, OpenTakServer
from tests.extensions.tak.tak_server import Phone
from tests.extensions.tak.test_journey import Mountain, ticks
from tests.hub.test_people_journey import came, stages
from tests.processes import Agent, until

pytestmark = pytest.mark.full


def count_chats(phone: Phone, text: str) -> int:
    return sum(each["remarks"]["text"] == text for each in phone.of("b-t-f"))


def test_kit_and_team_exchange_messages_over_real_opentakserver(
    tmp_path: Path, stack: ExitStack
) -> None:
    open_tak_server.install()
    server = stack.enter_context(OpenTakServer(tmp_path / "server"))
    refused = server.enroll("refused", "wrong")
    assert refused.returncode == 65
    assert "refuses administrator with this password (HTTP 401)" in refused.stderr
    there = Mountain(tmp_path, stack, server, tak_server_name=NAME)
    bravo = there.phone("ANDROID-1", "BRAVO", PYTAK_TLS_DONT_CHECK_HOSTNAME="1")
    kit: Agent = there.kit()
    location = {"location": {"latitude": 46.5, "longitude": 8.1}}
    assert kit.call("POST", "/api/package", location).body["status"] == "Delivered"
    seen = bravo.await_one("a-f-G-U-C", lambda event: event["lat"].startswith("46.5"))
    assert (seen["uid"], seen["contact"]["callsign"]) == (there.unit, "Ada")

    bravo.say("storm at five", (there.unit, "Ada"), "m-1")
    assert came(kit, "storm at five")["body"]["payloads"][0]["identity"]["name"] == "BRAVO (TAK)"
    until(lambda: ticks(bravo, "m-1") == ["b-t-f-d"])

    body = {"message": {"content": "in the hut"}, "to": "BRAVO (TAK)"}
    sent = kit.call("POST", "/api/package", body).body["id"]
    bravo.await_one("b-t-f", lambda event: event["remarks"]["text"] == "in the hut")
    until(lambda: "on BRAVO (TAK)'s kit" in stages(kit, sent))

    kit.call("POST", "/api/sos", {"content": "leg broken"})
    bravo.await_one("b-a-o-tbl")
    # The alert is repeated every 10 s. In that time the server answers the hub's pings by an echo
    # alone. The hub once took the server for lost then, and sent everything again.
    until(lambda: len(bravo.of("b-a-o-tbl")) > 5)
    assert count_chats(bravo, "in the hut") == 1
    assert ticks(bravo, "m-1") == ["b-t-f-d"]
