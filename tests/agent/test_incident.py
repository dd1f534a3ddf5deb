"""A kit's SOS from its user's view: a real agent, and the data that it adds to an SOS."""

from __future__ import annotations

import socket
import subprocess
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.agent.test_wrong_clock import Gpsd
from tests.processes import MODULE, PATIENCE, Agent, agent, sky, until


def incident(kit: Agent) -> dict[str, Any]:
    open_incident: dict[str, Any] = kit.call("GET", "/api/sos").body["incident"]
    return open_incident


def positions(kit: Agent) -> list[dict[str, Any]]:
    return [each["position"] for each in incident(kit)["items"] if "position" in each]


def test_positions_of_gpsd_are_added_to_open_sos(tmp_path: Path) -> None:
    with (
        closing(Gpsd()) as gpsd,
        sky(tmp_path) as above,
        agent(tmp_path, {"gpsd": gpsd.address, "sos-track": "1"}) as kit,
    ):
        assert kit.call("POST", "/api/sos", {"text": "leg broken"}).status == 201
        until(lambda: len(positions(kit)) >= 2)
        assert {(each["latitude"], each["source"]) for each in positions(kit)} == {(46.5, "gps")}
        above.expect("SOS location")
        kit.call("DELETE", "/api/sos")
        count = len(positions(kit))
        polls = len(gpsd.told)
        kit.post("gpsd is asked no more")
        assert len(positions(kit)) == count
        assert len(gpsd.told) <= polls + 1, "one call may have been in progress"


class SlowGpsd(Gpsd):
    """A gpsd whose receiver gets its next fix when the test allows it."""

    def __init__(self) -> None:
        self.may, self.asked, self.left = (threading.Event() for _ in range(3))
        self.may.set()
        super().__init__()

    def _tell(self, caller: socket.socket) -> None:
        self.asked.set()
        assert self.may.wait(PATIENCE)
        super()._tell(caller)
        self.left.set()


def test_fix_after_call_off_raises_no_sos(tmp_path: Path) -> None:
    """A receiver may need two minutes for its first fix. Meanwhile the person cancels a false
    alarm.
    """
    with (
        closing(SlowGpsd()) as gpsd,
        sky(tmp_path),
        agent(tmp_path, {"gpsd": gpsd.address}) as kit,
    ):
        # If the system's clock is not trusted, the agent first asks gpsd for the time.
        until(lambda: kit.call("GET", "/api/status").body["clock"]["trusted"])
        gpsd.may.clear()
        gpsd.asked.clear()
        assert kit.call("POST", "/api/sos", {"text": "a mistake"}).status == 201
        assert gpsd.asked.wait(PATIENCE)
        gpsd.left.clear()
        assert kit.call("DELETE", "/api/sos").body["incident"]["state"] == "called off"
        gpsd.may.set()
        assert gpsd.left.wait(PATIENCE)
        kit.post("what the fix has led to is on disk before this")
        assert (kit.call("GET", "/api/sos").body["active"], positions(kit)) == (0, [])
        assert incident(kit)["state"] == "called off"


def test_sos_without_position_contains_last_posted_position(
    tmp_path: Path,
) -> None:
    with sky(tmp_path), agent(tmp_path) as kit:
        place = {"latitude": 47.1, "longitude": 8.2, "timestamp": "2026-01-02T03:04:05Z"}
        kit.call("POST", "/api/package", {"location": place})
        assert kit.call("POST", "/api/sos", {}).status == 201
        (position,) = positions(kit)
        assert position == {**place, "source": "last posted"}


def test_answer_is_added_to_open_sos_and_raises_none(tmp_path: Path) -> None:
    """The commands use canned texts, which each receiver sees as text."""
    with sky(tmp_path) as above, agent(tmp_path) as kit:
        listed = sos_command(kit, "--words")
        assert listed.returncode == 0 and ", fire, " in listed.stdout
        refused = sos_command(kit, "--answer", "yes")
        assert refused.returncode == 1 and not incident(kit)
        assert "no SOS of this kit is open" in refused.stderr
        raised = sos_command(kit, "--yes", "--no-wait", "injury")
        assert raised.returncode == 0 and "no channel" not in raised.stdout
        above.expect("injury")
        assert "added to SOS" in sos_command(kit, "--answer", "two are injured").stdout
        above.expect("two are injured")
        assert [each["text"] for each in incident(kit)["items"]] == ["injury", "two are injured"]


def sos_command(kit: Agent, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*MODULE, "sos", "--port", str(kit.port), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_repeated_sos_calls_raise_one_incident(tmp_path: Path) -> None:
    key = {"Idempotency-Key": "one press"}
    with sky(tmp_path), agent(tmp_path) as kit:
        answers = [kit.call("POST", "/api/sos", {"text": "help"}, **key) for _ in range(3)]
        assert [each.status for each in answers] == [201, 200, 200]
        for _ in range(3):
            assert kit.call("POST", "/api/sos", {}).status == 200
        assert [each["text"] for each in incident(kit)["items"]] == ["help"]


def test_sos_with_same_key_and_other_text_is_accepted(tmp_path: Path) -> None:
    key = {"Idempotency-Key": "one press"}
    with agent(tmp_path, {"satellite-port": None}) as kit:
        answers = [
            kit.call("POST", "/api/sos", {"text": text}, **key)
            for text in ("leg broken", "two are hurt")
        ]
        assert [each.status for each in answers] == [201, 200]
        assert [each["text"] for each in incident(kit)["items"]] == ["leg broken", "two are hurt"]


def test_retry_after_call_off_raises_no_sos(tmp_path: Path) -> None:
    """The text of the SOS is recognised by the key. The last position has no key."""
    key = {"Idempotency-Key": "one press"}
    with sky(tmp_path), agent(tmp_path) as kit:
        kit.call("POST", "/api/package", {"location": {"latitude": 47.1, "longitude": 8.2}})
        assert kit.call("POST", "/api/sos", {}, **key).status == 201
        kit.call("DELETE", "/api/sos")
        kit.call("POST", "/api/sos", {}, **key)
        assert kit.call("GET", "/api/sos").body["active"] == 0
        assert (incident(kit)["state"], len(positions(kit))) == ("called off", 1)


def test_repeated_call_off_ends_no_other_sos(tmp_path: Path) -> None:
    """The first answer was lost, and another SOS was raised meanwhile."""
    with agent(tmp_path, {"satellite-port": None}) as kit:
        one = kit.call("POST", "/api/sos", {"text": "a mistake"}).body["number"]
        named = f"/api/sos?number={one}"
        first = kit.call("DELETE", named).body
        other = kit.call("POST", "/api/sos", {"text": "leg broken"}).body["number"]
        assert kit.call("DELETE", named).body == first
        assert (first["incident"]["number"], first["incident"]["state"]) == (one, "called off")
        assert kit.call("DELETE", f"/api/sos?number={other + 1}").body["incident"] is None
        standing = kit.call("GET", "/api/sos").body["incident"]
        assert (standing["number"], standing["ended"]) == (other, None)
        assert kit.call("DELETE", "/api/sos?number=x").status == 400
        assert kit.call("DELETE", f"/api/sos?number={other}").body["incident"]["ended"] is not None


def test_rejected_cancel_of_sent_package_does_not_end_sos(tmp_path: Path) -> None:
    """The SOS has left. If it ended silently, its receiver would never get the end."""
    with sky(tmp_path), agent(tmp_path) as kit:
        sent = kit.post("help", priority=100)
        assert (sent.status, sent.body["status"]) == (200, "Delivered")
        assert kit.call("DELETE", f"/api/package/{sent.body['id']}").status == 409
        assert kit.call("GET", "/api/sos").body["active"] == 1
        assert incident(kit)["state"] == "open"


def test_sos_ends_when_unsent_package_is_canceled(tmp_path: Path) -> None:
    nobody = {"satellite-port": str(tmp_path / "nobody")}
    with agent(tmp_path, nobody) as kit:
        waits = kit.call(
            "POST", "/api/package/async", {"message": {"content": "help"}, "priority": 100}
        )
        assert kit.call("DELETE", f"/api/package/{waits.body['id']}").status == 200
        assert kit.call("GET", "/api/sos").body["active"] == 0


def test_sos_ends_only_when_all_unsent_packages_are_canceled(tmp_path: Path) -> None:
    """No Package of the SOS is repeated. It would be false to report the SOS as open."""
    nobody = {"satellite-port": str(tmp_path / "nobody")}
    with agent(tmp_path, nobody) as kit:
        kit.call("POST", "/api/sos", {"text": "leg", "position": {"latitude": 47, "longitude": 8}})
        first, second = (each["id"] for each in incident(kit)["items"])
        assert kit.call("DELETE", f"/api/package/{first}").status == 200
        assert kit.call("GET", "/api/sos").body["active"] == 1
        assert kit.call("DELETE", f"/api/package/{second}").status == 200
        assert kit.call("GET", "/api/sos").body["active"] == 0


@pytest.mark.parametrize("where", ["", "?channel=Satellite"])
def test_clearing_queue_keeps_packages_of_open_sos(tmp_path: Path, where: str) -> None:
    """Regression: the SOS stayed open forever without a Package."""
    with agent(tmp_path) as kit:
        kit.call("POST", "/api/package/async", {"message": {"content": "all well"}})
        kit.call("POST", "/api/sos", {"text": "leg broken"})
        assert kit.call("DELETE", f"/api/queue{where}").body == {"deleted": 1}
        with sky(tmp_path) as above:
            above.expect("leg broken")
            # Cancel before the modem goes away: afterwards it is unknown if a Package in transit
            # has left.
            kit.call("DELETE", "/api/sos")
        assert kit.call("GET", "/api/sos").body["active"] == 0
