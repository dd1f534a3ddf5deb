"""Parsers of a tiled map's description, and of its tiles."""

from __future__ import annotations

import json
from typing import Any

from fieldagent.package.strict_json import NotJson, check_depth
from fieldagent.system.lazy_named_tuple import NamedTuple

PICTURES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp"}
"""Content types by the first bytes of a tile."""
VECTOR = "application/vnd.mapbox-vector-tile"
GZIP = b"\x1f\x8b"
ZOOM_MAX = 22
TILE_BYTES = 4_000_000
"""Maximum bytes of a tile. Larger content is not a tile."""
DRAWN_LAYERS = {"earth", "roads"}
"""Layers of Protomaps' basemap. A vector map must have one of these layers, because the page draws
no others."""


class UnusableMap(Exception):
    """Error: the map cannot be used. The message contains the reason and the fix."""


class MapAbout(NamedTuple):
    name: str
    attribution: str
    """Text that names the owner of the map. The text may contain markup."""
    lowest: int
    highest: int
    """Highest zoom level."""
    bounds: tuple[float, float, float, float] | None
    """West, south, east and north in degrees."""
    vector: bool = False


class Tile(NamedTuple):
    content: bytes
    kind: str
    is_compressed: bool = False
    """True if the tile is compressed with gzip."""


def read_picture(content: bytes) -> Tile | None:
    """Return the picture as a tile, or None if the content is not PNG, JPEG or WebP."""
    kinds = (kind for signature, kind in PICTURES.items() if content.startswith(signature))
    return next((Tile(content, kind) for kind in kinds), None)


def read_vector(content: bytes) -> Tile:
    """Return the content as a tile of a vector map. Only check whether the content is compressed
    with gzip.
    """
    return Tile(content, VECTOR, content.startswith(GZIP))


def is_valid_box(west: float, south: float, east: float, north: float) -> bool:
    """Return True if these degrees are the sides of a box on earth that does not cross the date
    line.
    """
    return -180 <= west < east <= 180 and -90 <= south < north <= 90


def read_metadata(text: str) -> dict[str, Any]:
    """Return the JSON object of a text, or an empty dict if it is not an object."""
    try:
        check_depth(text)
        document = json.loads(text)
    except (NotJson, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def refuse_other_layers(document: dict[str, Any], source: str) -> None:
    """Raise UnusableMap if the metadata of a vector map names no layer that the page draws.
    `source` is the name of the map file in the error.
    """
    listed = document.get("vector_layers")
    names = [
        str(each.get("id", ""))
        for each in (listed if isinstance(listed, list) else [])
        if isinstance(each, dict)
    ]
    if DRAWN_LAYERS.isdisjoint(names):
        layers = ", ".join(names[:5]) or "none"
        raise UnusableMap(
            f"{source} has other layers than the map needs ({layers}): take a vector map in"
            " the layers of Protomaps' basemap, or one with raster tiles (docs/how-to/maps.md)"
        )
