"""What the kit's map is drawn with, in a real browser: coasts that are there without any network,
and a region that people copied to the card."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import browser, faults, keep, look_of, page
from tests.processes import Agent, agent, until


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as opened:
        yield opened


def be_at(kit: Agent, latitude: float, longitude: float) -> None:
    place = {"latitude": latitude, "longitude": longitude}
    kit.call("POST", "/api/package/async", {"location": place})


def zoom(shown: Any, way: str, told: str) -> None:
    """Until the map says so: a press while it moves is none."""

    def press() -> bool:
        shown.locator(f"#map .leaflet-control-zoom-{way}").click()
        return told in shown.locator("#map-source").inner_text()

    until(press)


WIDEST = """() => Math.max(...[...document.querySelectorAll("#map path.track.own")]
    .map(each => each.getBoundingClientRect().width))"""


def test_coasts_are_there_without_any_network(chromium: Any, tmp_path: Path) -> None:
    """From one side of the antimeridian to the other, on Fiji, in the evening and by day."""
    with agent(tmp_path, {"satellite-port": None}) as kit:
        be_at(kit, -17.0, 179.0)
        be_at(kit, -16.5, -179.5)
        with page(chromium, kit.port, "390-dark") as shown:
            asked: list[str] = []
            shown.on("request", lambda request: asked.append(request.url))
            shown.locator("#map path.track.own").wait_for(state="attached")
            # Nobody has seen the map: what is first to be seen had the line for itself.
            assert not shown.locator("#map path.coast").count()
            shown.locator("#map").scroll_into_view_if_needed()
            shown.locator("#map-source").wait_for()
            assert [url for url in asked if url.endswith("/page/world.json")]
            # The two positions are neighbours: their line does not go round the world.
            assert 20 < shown.evaluate(WIDEST) < 390
            zoom(shown, "in", "they are within about 14 km only")
            assert not shown.locator("#map path.coast").count()
            zoom(shown, "out", "Coastlines: Natural Earth, within about 14 km")
            shown.locator("#map path.coast").first.wait_for(state="attached")
            dark = look_of(shown, "#map path.coast", "stroke")
            keep(shown, "coasts-390-dark")
            shown.emulate_media(color_scheme="light")
            assert look_of(shown, "#map path.coast", "stroke") != dark
            keep(shown, "coasts-390-light")
            assert not faults(shown)
            # What was needed once is kept, also by a visit that does not look at the map.
            until(lambda: is_kept(shown))
            shown.reload()
            shown.locator("#map path.track.own").wait_for(state="attached")
            kit.kill()
            shown.reload(wait_until="commit")
            shown.locator("#away", has_text="does not answer").wait_for()
            assert is_kept(shown)


def is_kept(shown: Any) -> bool:
    return bool(shown.evaluate("caches.match('/page/world.json').then(found => !!found)"))
