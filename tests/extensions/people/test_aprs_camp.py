"""An APRS frequency, a kit that hears it, and its hub, all as real processes. A station's position
is a tracker's position on the kit's page and at the hub, and never the kit's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import browser
from tests.extensions.people.camp import APRS, Camp, call_of, camp, learn
from tests.hub.test_console import SECRET, call, console, sign_in_as_olga
from tests.hub.test_journey import folder
from tests.processes import Hub, administer, hub, until

ADA, ROVER, STRANGER = call_of(2), call_of(4), call_of(5)
CAVEAT = "by APRS, unproved call sign"
EMERGENCY = "432105", '`(_fn"Oj/'
"""Mic-E: the destination contains the latitude and the emergency code, the information the rest."""


class Frequency(NamedTuple):
    kit: Camp
    hub: Hub
    proof: dict[str, str]

    def ask(self, path: str) -> Any:
        """Return the hub's answer."""
        status, _, text = call(self.hub, "GET", path, **self.proof)
        assert status == 200, text
        return json.loads(text)

    def devices(self) -> dict[str, Any]:
        return {each["name"]: each for each in self.ask("/api/devices")["devices"]}

    def around(self) -> dict[str, Any]:
        return {each["handle"]: each for each in self.kit.people_around()}

    def frames(self) -> dict[str, int]:
        counts: dict[str, int] = self.kit.mesh()["frames"]
        return counts


@contextmanager
def frequency(home: Path, **settings: str) -> Iterator[Frequency]:
    """Yield a kit with a link that forwards positions of known people, and a hub that knows one
    tracker.
    """
    database = str(home / "hub.sqlite3")
    administer(database, "init", "Alps")
    key = administer(database, "key", "add", "desk", "--read")["apiKey"]
    administer(database, "user", "add", "Ada")
    mail = ("--email", "olga@example.org", "--password")
    administer(database, "user", "add", "Olga", *mail, secret=SECRET)
    administer(database, "user", "role", "Olga", "dispatcher")
    token = administer(database, "user", "token", "add", "desk", "--user", "Olga")["token"]
    link = administer(database, "device", "add", "kit-ada", "--user", "Ada")["hub-token"]
    administer(database, "tracker", "add", ROVER, "--id", ROVER, "--user", "Ada")
    with ExitStack() as stack:
        above = stack.enter_context(hub(folder(home / "hub"), {"database": database}))
        listens = {
            "hub-address": above.address,
            "hub-token": link,
            "mesh-people": f"{ROVER} Rover",
            "mesh-calls": ADA,
            "mesh-sos": None,
            "mesh-positions": "1",
            **settings,
        }
        kit = stack.enter_context(camp(home, listens, firmware=APRS))
        proof = {"x-api-key": key, "Authorization": f"Bearer {token}"}
        yield Frequency(kit, above, proof)


def test_listed_station_is_a_tracker_and_an_unlisted_one_is_ignored(tmp_path: Path) -> None:
    with frequency(tmp_path) as there:
        (ada,) = there.kit.people
        ada.type(f"from {STRANGER} APRS !4632.85N/00759.10E>")
        ada.type(f"from {ROVER} APRS !4630.00N/00754.00E>088/036")
        ada.type(f"from {ROVER} APRS !4630.00N/00754.00E>088/036")
        ada.type("position 46.5475 7.985 3454")
        until(lambda: there.devices()[ROVER]["position"])
        devices = there.devices()
        rover = devices[ROVER]
        assert (rover["position"]["latitude"], rover["position"]["longitude"]) == (46.5, 7.9)
        assert rover["over"] == "APRS"
        assert devices["kit-ada"]["position"] is None, "the kit need not be where a tracker is"
        around = there.around()
        assert {each: around[each]["caveat"] for each in around} == {
            ROVER.lower(): CAVEAT,
            ADA.lower(): CAVEAT,
        }
        assert around[ADA.lower()]["position"]["latitude"] == pytest.approx(46.5475)
        assert (there.frames()["unlisted"], there.frames()["copies"]) == (1, 1)
        metrics = there.kit.kit.call("GET", "/metrics").body
        assert 'fieldagent_people_frames_total{result="unlisted"} 1' in metrics
        # The position of an unknown person stays at the kit.
        assert [each["kind"] for each in there.kit.packages()] == ["waypoint"]
        # An emergency does not ring unless a setting names that call. People see it in any case.
        ada.type(f"from {ROVER} {EMERGENCY[0]} {EMERGENCY[1]}")
        until(lambda: there.kit.kit.call("GET", "/api/status").body["notices"])
        (notice,) = there.kit.kit.call("GET", "/api/status").body["notices"]
        assert notice.startswith(f"Rover ({ROVER.lower()}) reports distress, {CAVEAT}")
        assert there.kit.kit.call("GET", "/api/sos").body["incident"] is None
        # A guest's message is rejected, and a known person's is acknowledged when it is on disk.
        there.kit.write(0, "hello")
        assert learn(ada, "ack") == {"ack": 1, "there": False}


@pytest.mark.full
def test_kits_page_and_console_show_that_a_position_is_unproved(tmp_path: Path) -> None:
    with frequency(tmp_path) as there, browser.browser() as opened:
        (ada,) = there.kit.people
        ada.type(f"from {ROVER} APRS !4630.00N/00754.00E>088/036")
        until(lambda: there.devices()[ROVER]["position"])
        with browser.page(opened, there.kit.kit.port) as shown:
            text = shown.locator("#around li").filter(has_text="Rover").inner_text()
            assert CAVEAT in text
            on_map = shown.locator("#map .name").filter(has_text="Rover")
            on_map.filter(has_text=f"less than a minute ago, {CAVEAT}").wait_for(state="attached")
        with console(opened, there.hub, "1280-dark") as shown:
            sign_in_as_olga(shown)
            on_map = shown.locator("#map .name").filter(has_text=ROVER)
            on_map.filter(has_text=f"ago, {CAVEAT}").wait_for(state="attached")


@pytest.mark.full
def test_sos_setting_lets_one_call_sign_raise_an_sos(tmp_path: Path) -> None:
    with frequency(tmp_path, **{"mesh-sos": ROVER}) as there:
        (ada,) = there.kit.people
        ada.type(f"from {ADA} {EMERGENCY[0]} {EMERGENCY[1]}")
        ada.type(f"from {ROVER} {EMERGENCY[0]} {EMERGENCY[1]}")
        until(lambda: there.kit.kit.call("GET", "/api/sos").body["heard"])
        until(lambda: len(there.kit.packages()) >= 2)
        (said,) = [each for each in there.kit.packages() if each["kind"] == "message"]
        assert said["text"].startswith(f"SOS from Rover ({ROVER.lower()}, {CAVEAT}), at ")
        until(lambda: there.ask("/api/sos")["sos"])
        until(lambda: "SOS from Rover" in json.dumps(there.ask("/api/items")))
        assert there.devices()["kit-ada"]["position"] is None


@pytest.mark.full
def test_busy_channel_bounds_the_commits_of_the_journal(tmp_path: Path) -> None:
    """400 stations send. A message to the kit is answered nevertheless."""
    with frequency(tmp_path, **{"mesh-calls": "*"}) as there:
        (ada,) = there.kit.people

        def commits() -> int:
            status = there.kit.kit.call("GET", "/api/status").body
            return int(status["journal"]["commits"])

        before = commits()
        for first in range(0, 400, 40):
            # At most as many at once as the line to the kit holds.
            for number in range(first, first + 40):
                ada.type(f"from N{number}CA APRS !46{number % 60:02}.00N/007{number // 60:02}.00E>")
            until(lambda first=first: sum(there.frames().values()) >= first + 40)  # type: ignore[misc]
        taken = there.frames()["taken"]
        assert there.frames()["limited"] >= 400 - taken
        assert taken <= 60 + 30, "60 at once, and one a second"
        until(lambda: len(there.around()) >= 60)
        # The kit stores each station's name, time and position.
        assert commits() - before <= 3 * taken + 30
        there.kit.write(0, "hello")
        assert learn(ada, "ack") == {"ack": 1, "there": False}
