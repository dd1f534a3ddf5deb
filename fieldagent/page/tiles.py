"""Maps in tiles: what is told of one, and what a tile is."""

from __future__ import annotations

import json
from typing import Any

from fieldagent.package.strict_json import NotJson, check_depth
from fieldagent.system.lazy_named_tuple import NamedTuple

PICTURES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp"}
"""Content types, by how a tile begins."""
VECTOR = "application/vnd.mapbox-vector-tile"
GZIP = b"\x1f\x8b"
ZOOM_MAX = 22
TILE_BYTES = 4_000_000
"""What is larger is no tile, whatever the file says."""
DRAWN = {"earth", "roads"}
"""Layers of Protomaps' basemap of which a vector map has one, or nothing of it would be drawn."""


class UnusableMap(Exception):
    """The text says why, and what to do."""


class MapAbout(NamedTuple):
    name: str
    attribution: str
    """Whose the map is; may hold markup."""
    lowest: int
    highest: int
    """Zoom levels."""
    bounds: tuple[float, float, float, float] | None
    """West, south, east and north in degrees."""
    vector: bool = False


class Tile(NamedTuple):
    content: bytes
    kind: str
    packed: bool = False
    """By gzip."""


def picture(content: bytes) -> Tile | None:
    """Return it as a tile, or None where it is no picture."""
    kinds = (kind for begin, kind in PICTURES.items() if content.startswith(begin))
    return next((Tile(content, kind) for kind in kinds), None)


def vector(content: bytes) -> Tile:
    """Return content as a tile of a vector map; it is looked at for gzip alone."""
    return Tile(content, VECTOR, content.startswith(GZIP))


def sound_bounds(west: float, south: float, east: float, north: float) -> bool:
    """Return whether these degrees are a box on earth that does not cross the date line."""
    return -180 <= west < east <= 180 and -90 <= south < north <= 90


def metadata(text: str) -> dict[str, Any]:
    """Return an object of JSON, an empty one where the text is none."""
    try:
        check_depth(text)
        document = json.loads(text)
    except (NotJson, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def refuse_other_layers(document: dict[str, Any], where: str) -> None:
    """Refuse a vector map of which the metadata names no layers that the page draws. Raises
    UnusableMap."""
    listed = document.get("vector_layers")
    names = [
        str(each.get("id", ""))
        for each in (listed if isinstance(listed, list) else [])
        if isinstance(each, dict)
    ]
    if DRAWN.isdisjoint(names):
        layers = ", ".join(names[:5]) or "none that it names"
        raise UnusableMap(
            f"{where} has other layers than those that are drawn ({layers}): take a vector map in"
            " the layers of Protomaps' basemap, or one with raster tiles (docs/how-to/maps.md)"
        )
