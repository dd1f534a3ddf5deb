"""The kit's map in a real browser: coasts that need no network, and a region that people copied to
the card.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser import WITH_WORKER, faults, keep, look_of, page
from tests.page.test_map_file import write_vectors
from tests.processes import Agent, agent, until

pytestmark = pytest.mark.full


def be_at(kit: Agent, latitude: float, longitude: float) -> None:
    place = {"latitude": latitude, "longitude": longitude}
    kit.call("POST", "/api/package/async", {"location": place})


def zoom(shown: Any, way: str, text: str) -> None:
    """Press until the map shows the text: a press while it moves has no effect."""

    def press() -> bool:
        shown.locator(f"#map .leaflet-control-zoom-{way}").click()
        return text in shown.locator("#map-source").inner_text()

    until(press)


WIDEST = """() => Math.max(...[...document.querySelectorAll("#map path.track.own")]
    .map(each => each.getBoundingClientRect().width))"""


def test_coastlines_are_drawn_without_network(chromium: Any, tmp_path: Path) -> None:
    """Positions on both sides of the antimeridian, on Fiji, in the dark and the light theme."""
    with agent(tmp_path, {"satellite-port": None}) as kit:
        be_at(kit, -17.0, 179.0)
        be_at(kit, -16.5, -179.5)
        with page(chromium, kit.port, "390-dark", **WITH_WORKER) as shown:
            asked: list[str] = []
            shown.on("request", lambda request: asked.append(request.url))
            shown.locator("#map path.track.own").wait_for(state="attached")
            # The map was not visible yet, and the visible content had the line for itself.
            assert not shown.locator("#map path.coast").count()
            shown.locator("#map").scroll_into_view_if_needed()
            shown.locator("#map-source").wait_for()
            assert [url for url in asked if url.endswith("/page/world.json")]
            # The two positions are close: their line does not go round the world.
            assert 20 < shown.evaluate(WIDEST) < 390
            zoom(shown, "in", "Too close for these coastlines")
            assert not shown.locator("#map path.coast").count()
            zoom(shown, "out", "Coastlines: Natural Earth, within about 14 km")
            shown.locator("#map path.coast").first.wait_for(state="attached")
            dark = look_of(shown, "#map path.coast", "stroke")
            keep(shown, "coasts-390-dark")
            shown.emulate_media(color_scheme="light")
            assert look_of(shown, "#map path.coast", "stroke") != dark
            keep(shown, "coasts-390-light")
            assert not faults(shown)
            # Files that were needed once are kept, also after a visit without the map.
            until(lambda: is_kept(shown))
            shown.reload()
            shown.locator("#map path.track.own").wait_for(state="attached")
            kit.kill()
            shown.reload(wait_until="commit")
            shown.locator("#away", has_text="does not answer").wait_for()
            assert is_kept(shown)


COLOURS = """() => {
  const drawn = document.querySelector("#map canvas.leaflet-tile-loaded");
  if (!drawn) return [];
  const { width, height } = drawn, ink = drawn.getContext("2d");
  return [0.25, 0.75].map(share => ink.getImageData(width * share, height / 2, 1, 1).data.join());
}"""
"""Colours in the west and in the east of a tile."""


def greens(colours: list[str]) -> list[int]:
    return sorted(int(each.split(",")[1]) for each in colours)


def test_vector_map_is_drawn_in_light_and_dark_theme(chromium: Any, tmp_path: Path) -> None:
    place = tmp_path / "alps.pmtiles"
    write_vectors(place)
    settings: dict[str, str | None] = {"satellite-port": None, "map-file": str(place)}
    with agent(tmp_path, settings) as kit, page(chromium, kit.port, "1280-light") as shown:
        shown.locator("#map canvas.leaflet-tile-loaded").first.wait_for()
        shown.locator("#map-source", has_text="Alps").wait_for()
        until(lambda: len({*shown.evaluate(COLOURS)}) == 2)
        light = shown.evaluate(COLOURS)
        shown.locator("#map").scroll_into_view_if_needed()
        keep(shown, "vectors-1280-light")
        shown.emulate_media(color_scheme="dark")
        until(lambda: {*shown.evaluate(COLOURS)}.isdisjoint({*light, "0,0,0,0"}))
        until(lambda: len({*shown.evaluate(COLOURS)}) == 2)
        assert greens(shown.evaluate(COLOURS))[-1] < 100 < greens(light)[0]
        keep(shown, "vectors-1280-dark")
        assert not faults(shown)
        # The card is pulled out.
        place.unlink()
        shown.reload()
        shown.locator("#map-trouble", has_text="does not exist: copy it there").wait_for()
        shown.locator("#map").scroll_into_view_if_needed()
        shown.locator("#map path.grid").first.wait_for(state="attached")
        shown.locator("#map-source", has_text="Natural Earth").wait_for()


def is_kept(shown: Any) -> bool:
    return bool(shown.evaluate("caches.match('/page/world.json').then(found => !!found)"))
