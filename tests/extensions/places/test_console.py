"""Fences on the console's map, their alarms at the desk, and a kit's reports, in Chromium."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from fieldagent.extensions.places.hub import fences, shape
from fieldagent.extensions.places.hub.fences import FenceKits
from fieldagent.extensions.places.hub.week import find_week
from fieldagent.hub.part import KitPosition
from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.opening import open_store
from fieldagent.package.coordinates import DatedPlace
from tests import browser
from tests.hub.test_console import SECRET, console, settle_in
from tests.processes import administer, hub

pytestmark = pytest.mark.full

FIJI = [[[179, -18], [-179, -18], [-179, -16], [179, -16], [179, -18]]]


@pytest.mark.parametrize("screen", ["1280-light"])
def test_console_shows_fences_their_alarms_and_the_kits_report(tmp_path: Path, screen: str) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    administer(database, "user", "role", "Olga", "administrator")
    now = datetime.now(UTC).timestamp()

    def cross(db: Db) -> None:
        island = shape.parse_polygon({"type": "Polygon", "coordinates": FIJI})
        fences.add_fence(db, 1, "Island", island, "both", FenceKits(), now)
        fences.add_fence(
            db, 1, "Hut", shape.make_circle(-17.5, 179.5, 5_000), "both", FenceKits(), now
        )
        (member,) = db.execute("SELECT member FROM device WHERE id = 1")[0]
        for at, east in ((now - 60, 179.5), (now, 178.0)):
            place = DatedPlace(-17.5, east, at)
            fences.check_positions(db, [KitPosition(1, 1, member, "kit-ada", place)], now)

    store = open_store(database)
    store.run_once(cross)
    store.close()
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, screen) as shown,
    ):
        shown.get_by_label("User number").fill("olga@example.org")
        shown.get_by_label("Password", exact=True).fill(SECRET.strip())
        shown.get_by_role("button", name="Sign in").click()
        shown.locator("#desk").get_by_text("Fence 1: Ada (kit-ada)").first.wait_for()
        shown.locator("#desk").get_by_text("was outside 'Island'").first.wait_for()
        shown.locator("#map .name span", has_text="Island").wait_for()
        drawn = shown.locator("#map path.fence")
        assert drawn.count() == 2
        # Across the antimeridian the shape keeps its width and does not go round the earth.
        boxes = [each.bounding_box() for each in drawn.all()]
        widths = [each["width"] for each in boxes]
        assert max(widths) < shown.locator("#map").bounding_box()["width"] / 4
        assert browser.faults(shown) == []
        browser.keep(shown, "console-fences")
        shown.goto(f"{running.address}/console/administration/devices")
        shown.locator("#subject summary", has_text="kit-ada").first.click()
        shown.locator("#subject").get_by_text("Satellite cost").first.click()
        week = find_week(now).name
        line = shown.locator("#device-1-cost p", has_text=f"Report of {week}")
        line.wait_for()
        with shown.expect_download() as download:
            line.get_by_text("GPX").click()
        assert download.value.suggested_filename == f"kit-1-{week}.gpx"
        with shown.context.expect_page() as opening:
            line.get_by_text("print").click()
        page = opening.value
        assert page.locator("h1").inner_text() == f"kit-ada, {week}"
        assert "Fence 1" not in page.locator("body").inner_text()
        assert page.locator("td", has_text="fence 1").count() == 1
        assert (
            page.evaluate("getComputedStyle(document.querySelector('table')).borderCollapse")
            == "collapse"
        )
        assert browser.faults(page) == []
        assert page.locator(".screen").is_visible()
        page.emulate_media(media="print")
        assert not page.locator(".screen").is_visible()
        assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF")
        page.close()
