"""A map to carry along: raster tiles in one SQLite file (MBTiles 1.3)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

FORMATS = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp"}
"""Content types, by how a tile begins."""
ZOOM_MAX = 22


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


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Never written, also where the folder could be."""
    try:
        if not path.is_file():
            raise UnusableMap(f"map-file {path} is not there: copy it there, or remove map-file")
        address = f"file:{quote(str(path))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as db:
            yield db
    except (sqlite3.Error, OSError) as error:
        raise UnusableMap(f"map-file {path} is no MBTiles file: {error}") from error


def about(path: Path) -> MapAbout:
    """Raises UnusableMap."""
    with _opened(path) as db:
        told = dict(db.execute("SELECT name, value FROM metadata").fetchall())
        ((lowest, highest),) = db.execute("SELECT min(zoom_level), max(zoom_level) FROM tiles")
        rows = db.execute("SELECT tile_data FROM tiles LIMIT 1").fetchall()
    if not rows or _format(bytes(rows[0][0])) is None:
        kind = told.get("format", "none")
        raise UnusableMap(
            f"map-file {path} holds no pictures (format {kind}): take one with raster tiles, PNG,"
            " JPEG or WebP"
        )
    return MapAbout(
        str(told.get("name", "")),
        str(told.get("attribution", "")),
        lowest,
        highest,
        _bounds(str(told.get("bounds", ""))),
    )


def tile(path: Path, zoom: int, x: int, y: int) -> tuple[bytes, str] | None:
    """A picture and its content type; `y` counts from the north. Raises UnusableMap."""
    with _opened(path) as db:
        rows = db.execute(
            "SELECT tile_data FROM tiles WHERE zoom_level = ? AND tile_column = ? AND tile_row = ?",
            (zoom, x, 2**zoom - 1 - y),
        ).fetchall()
    for (content,) in rows:
        kind = _format(bytes(content))
        return None if kind is None else (bytes(content), kind)
    return None


def _format(content: bytes) -> str | None:
    return next((kind for begin, kind in FORMATS.items() if content.startswith(begin)), None)


def _bounds(text: str) -> tuple[float, float, float, float] | None:
    try:
        west, south, east, north = map(float, text.split(","))
    except ValueError:
        return None
    sound = -180 <= west < east <= 180 and -90 <= south < north <= 90
    return (west, south, east, north) if sound else None
