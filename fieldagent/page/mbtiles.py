"""Tiles in one SQLite file (MBTiles 1.3)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from fieldagent.page import tiles
from fieldagent.page.tiles import GZIP, TILE_BYTES, MapAbout, Tile, UnusableMap

INSTRUCTIONS_MAX, CHECK_INTERVAL_INSTRUCTIONS = 20_000_000, 10_000
"""Maximum number of instructions of SQLite's virtual machine for one use of a file (about a
second), and number of instructions between two checks."""
VALUE_BYTES = 16 << 20
"""Maximum bytes of a value."""
METADATA_MAX = 1_000
"""Maximum number of rows of metadata that are read."""
VECTOR = "pbf"
"""Format of vector tiles in the metadata."""


@contextmanager
def _open_file(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file without writing, even if the folder is writable."""
    try:
        address = f"file:{quote(str(path))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as db:
            _limit_resources(db)
            yield db
    except (sqlite3.Error, OSError) as error:
        raise UnusableMap(f"map-file {path} is not a PMTiles or MBTiles file: {error}") from error


def _limit_resources(db: sqlite3.Connection) -> None:
    """Limit the time and memory of each use of the file, because it may contain a view with endless
    rows.
    """
    steps = 0

    def is_too_long() -> bool:
        nonlocal steps
        steps += CHECK_INTERVAL_INSTRUCTIONS
        return steps > INSTRUCTIONS_MAX

    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES)
    db.set_progress_handler(is_too_long, CHECK_INTERVAL_INSTRUCTIONS)


def read_about(path: Path) -> MapAbout:
    """Return the map file's description. Raises UnusableMap if the map file cannot be used."""
    with _open_file(path) as db:
        metadata = dict(db.execute("SELECT name, value FROM metadata").fetchmany(METADATA_MAX))
        ((lowest, highest),) = db.execute("SELECT min(zoom_level), max(zoom_level) FROM tiles")
        rows = db.execute("SELECT tile_data FROM tiles LIMIT 1").fetchmany(1)
    kind = metadata.get("format", "none")
    if is_vector := kind == VECTOR and rows and bytes(rows[0][0]).startswith(GZIP):
        tiles.refuse_other_layers(
            tiles.read_metadata(str(metadata.get("json", ""))), f"map-file {path}"
        )
    elif not rows or tiles.read_picture(bytes(rows[0][0])) is None:
        raise UnusableMap(
            f"map-file {path} does not hold pictures (format {kind}): take one with raster tiles,"
            " PNG,"
            " JPEG or WebP, or a vector map (docs/how-to/maps.md)"
        )
    return MapAbout(
        str(metadata.get("name", "")),
        str(metadata.get("attribution", "")),
        lowest,
        highest,
        _read_bounds(str(metadata.get("bounds", ""))),
        bool(is_vector),
    )


def read_tile(path: Path, zoom: int, x: int, y: int) -> Tile | None:
    """Return a tile, or None if the map does not have it. `y` counts from the north. Raises
    UnusableMap if the map file cannot be read.
    """
    with _open_file(path) as db:
        rows = db.execute(
            "SELECT tile_data FROM tiles WHERE zoom_level = ? AND tile_column = ? AND tile_row = ?"
            f" AND length(tile_data) <= {TILE_BYTES}",
            (zoom, x, 2**zoom - 1 - y),
        ).fetchmany(1)
        formats = db.execute("SELECT value FROM metadata WHERE name = 'format'").fetchmany(1)
    for (data,) in rows:
        content = bytes(data)
        if (VECTOR,) in formats and content.startswith(GZIP):
            return tiles.read_vector(content)
        return tiles.read_picture(content)
    return None


def _read_bounds(text: str) -> tuple[float, float, float, float] | None:
    try:
        west, south, east, north = map(float, text.split(","))
    except ValueError:
        return None
    return (west, south, east, north) if tiles.is_valid_box(west, south, east, north) else None
