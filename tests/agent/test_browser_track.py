"""The track of a day in a real browser: gaps, the next position, and another interval with its
cost.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.browser import browser, faults, keep, page
from tests.processes import Agent, agent, sky, until

DAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
"""Yesterday, whose hours are all over."""
MINUTES = (480, 490, 500, 700, 710, 720, 730)
"""Minutes of the day of the positions, with one gap of 200 minutes."""
PACE = {"interval": 1800, "movingInterval": 300, "satelliteFactor": 4, "costly": False}


def walk(kit: Agent) -> None:
    for at, minutes in enumerate(MINUTES):
        moment = DAY + timedelta(minutes=minutes)
        place = {"latitude": 46 + at / 100, "longitude": 8.0, "timestamp": moment.isoformat()}
        kit.call("POST", "/api/package/async", {"location": place})


def report(kit: Agent, **more: object) -> None:
    body = {**PACE, "moving": False, "due": time.time() + 900, **more}
    assert kit.call("POST", "/api/track/tracker", body).status == 200


@pytest.mark.full
def test_track_page_shows_gaps_and_cost_of_interval(tmp_path: Path) -> None:
    settings: dict[str, str | None] = {"satellite-credit-price": "0.10 EUR"}
    with browser() as opened, sky(tmp_path), agent(tmp_path, settings) as kit:
        walk(kit)
        with page(opened, kit.port, "390-light") as shown:
            shown.locator("#to-track").focus()
            shown.keyboard.press("Enter")
            shown.wait_for_url("**/track")
            due = shown.locator("#track-due")
            due.filter(has_text="No tracker has reported").wait_for()
            assert not shown.locator("#talk").is_visible()
            assert shown.locator("#raise").is_visible()
            choose_day_with_gaps(shown)
            report(kit)
            shown.reload()
            due.filter(has_text="The next position is due at").wait_for()
            choose_day_with_gaps(shown)
            check_cost_of_other_interval(shown, kit)
            keep(shown, "track-390-light")
            assert not faults(shown)
            shown.emulate_media(color_scheme="dark")
            assert not faults(shown)
            shown.evaluate("scrollTo(0, 0)")
            keep(shown, "track-390-dark")
            assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
            # The address keeps the chosen page, and Back returns to the previous one.
            shown.go_back()
            shown.locator("#talk").wait_for()
            assert not shown.locator("#track").is_visible()
            shown.go_forward()
            shown.locator("#track").wait_for()
            shown.locator("#track-back").click()
            shown.locator("#talk").wait_for()


def choose_day_with_gaps(shown: Any) -> None:
    shown.locator("#track-day").fill(f"{DAY:%Y-%m-%d}")
    shown.locator("#track-told", has_text="7 positions on this day").wait_for()
    gaps = shown.locator("#gaps li")
    gaps.nth(1).wait_for()
    texts = gaps.all_inner_texts()
    assert texts[0].endswith("3 hours") and "08:20" in texts[0] and "11:40" in texts[0], texts
    assert texts[1].startswith("No position since") and "12:10" in texts[1], texts
    # Two lines with nothing between them.
    until(lambda: shown.locator("#map path.track.own").count() == 2)
    assert shown.locator("#map path.spot.own").count() == 4


def check_cost_of_other_interval(shown: Any, kit: Agent) -> None:
    shown.locator("#pace-now", has_text="set by the tracker's options").wait_for()
    shown.locator("#pace-interval").select_option("3600")
    cost = shown.locator("#pace-cost", has_text="Satellite, a day: at rest 6 positions, ")
    cost.wait_for()
    assert "in motion all day 36 positions" in cost.inner_text()
    assert "EUR" in cost.inner_text()
    assert kit.call("GET", "/api/status").body["track"]["chosenInterval"] is None
    shown.locator("#pace button").click()
    shown.locator("#pace-done", has_text="Saved").wait_for()
    assert kit.call("GET", "/api/status").body["track"]["chosenInterval"] == 3600
    shown.locator("#pace-now", has_text="set here").wait_for()


def test_extreme_track_intervals_are_rejected(tmp_path: Path) -> None:
    tracker = "/api/track/tracker"
    with agent(tmp_path, {"satellite-port": str(tmp_path / "absent")}) as kit:
        for far in ({"interval": 1e-320}, {"satelliteFactor": 1e-9}, {"movingInterval": 1e10}):
            refused = kit.call("POST", tracker, {**PACE, "moving": False, **far})
            assert refused.status == 422, far
        odd = {"interval": 9e9, "movingInterval": 0.001, "satelliteFactor": 0.001}
        report(kit, **odd)
        assert kit.call("GET", "/api/track/cost?interval=60").status == 200
