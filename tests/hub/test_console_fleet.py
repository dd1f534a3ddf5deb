"""The fleet in Chromium: a real kit on its own machine, a real hub, and differences
between kits.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fieldagent.cli.arguments import dispatch
from fieldagent.hub.records import contact, kit_condition
from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.opening import open_store
from fieldagent.wire.kit_condition import POWER, KitCondition
from tests import browser
from tests.hub.test_console import SECRET, console, settle_in
from tests.processes import administer, agent, hub, until
from tests.wire.test_command import STATUS

pytestmark = pytest.mark.full

OTHERS = ("kit-ben", "kit-cleo", "kit-dan")
MACHINE = {
    "sys/class/thermal/thermal_zone0/temp": b"84200\n",
    "sys/devices/platform/soc/soc:firmware/get_throttled": b"50005\n",
    "etc/os-release": b"ID=debian\n",
    "etc/debian_version": b"12.9\n",
    "proc/device-tree/chosen/bootloader/rsts": (0x1000).to_bytes(4),
}
AGENT = """
import sys
from pathlib import Path
from fieldagent.agent.condition import machine
machine.ROOT = Path(sys.argv.pop(1))
from fieldagent.__main__ import main
sys.exit(main())
"""
"""A program that runs an agent with the facts of another machine."""


def agent_on_other_machine(home: Path) -> list[str]:
    for name, content in MACHINE.items():
        file = home / "root" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return [sys.executable, "-c", AGENT, str(home / "root")]


def report_other_kits(database: str) -> None:
    """Add three healthy kits, one of which has not reported for a while."""
    heard: dict[str, Any] = {"satellite": [None, *range(6), *[4] * 17]}
    well = KitCondition(STATUS, "Debian 13.1", POWER, 1, 0, 0, heard)
    ids = [administer(database, "device", "add", name, "--user", "Ada")["id"] for name in OTHERS]
    now = time.time()

    def note(db: Db) -> None:
        for at, device in enumerate(ids):
            contact.record_contact(db, device, "ip", now - at * 3_600)
            contact.store_version(db, device, "0.1.0+60")
            kit_condition.store_condition(db, device, replace(well, clock=at), now - at * 3_600)

    store = open_store(database)
    store.run_once(note)
    store.close()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("fleet")
    database = str(home / "hub.sqlite3")
    token = settle_in(database)
    report_other_kits(database)
    with hub(home, {"database": database}) as running:
        settings = {"satellite-port": None, "hub-token": token, "hub-address": running.address}
        with agent(home, settings, agent_on_other_machine(home)):
            until(lambda: "12.9" in str(administer(database, "fleet")))
            yield running


@pytest.fixture(scope="module")
def opened() -> Iterator[Any]:
    with browser.browser() as instance:
        yield instance


@pytest.mark.parametrize("screen", ["390-light", "1280-dark"])
def test_fleet_view_lists_unusual_kits_first(fleet: Any, opened: Any, screen: str) -> None:
    with console(opened, fleet, screen) as shown:
        shown.get_by_label("User number").fill("olga@example.org")
        shown.get_by_label("Password", exact=True).fill(SECRET.strip())
        shown.get_by_role("button", name="Sign in").click()
        shown.get_by_text("No SOS is open.").wait_for()
        shown.get_by_role("link", name="Fleet").press("Enter")
        first = shown.get_by_role("row").nth(1)
        first.get_by_text("its processor is at 84 °C; those of the others at 48 °C").wait_for()
        text = first.inner_text()
        assert text.startswith("kit-ada"), text
        for words in (
            "its supply is too weak",
            "its processor is slowed down, by heat or a weak supply",
            "its system is Debian 12.9; 3 of 4 have Debian 13.1",
            "power on",
            "linked now",
        ):
            assert words in text, words
        assert not shown.locator("#room").is_visible()
        shown.get_by_text("Unusual or in trouble: 1 of 4.").wait_for()
        bars = shown.get_by_role("img", name="Satellite, bars of each hour")
        assert bars.count() == 3
        assert "4 4 –" in bars.nth(2).get_attribute("aria-label"), "two hours old"
        heights = bars.first.evaluate(
            "bars => [...bars.children].map(each => each.getBoundingClientRect().height)"
        )
        assert len(heights) == 24 and heights[0] == 0
        assert heights[1:7] == sorted(heights[1:7]) and heights[6] > 15
        shown.wait_for_function("() => document.activeElement.id === 'figures-title'")
        seen = "document.querySelector('#figures').getBoundingClientRect().top < innerHeight / 2"
        assert shown.evaluate(seen), "what was asked for is in view"
        width = shown.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert width <= 0, "the page itself never scrolls sideways"
        browser.keep(shown, f"console-fleet-{screen}")
        assert browser.faults(shown) == []
        # The fleet has its own address: a reload keeps it, and a kit's name leads to the kit.
        shown.reload()
        first.get_by_text("its supply is too weak").wait_for()
        first.get_by_role("link").press("Enter")
        shown.get_by_role("heading", name="Conversation with kit-ada").wait_for()
        assert shown.url.endswith("/console/kit/1")


def test_fleet_command_shows_the_same_order(fleet: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["hub", "fleet", *fleet.arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("kit-ada: ") and "its supply is too weak (!)" in lines[0]
    rows = [line.split()[0] for line in lines[lines.index("") + 2 :]]
    assert rows == ["kit-ada", *OTHERS]
    assert "▃▅▆█" in lines[-1] and "linked" in lines[lines.index("") + 2]
