"""Reads the offline map from one PMTiles or MBTiles file. The format is recognised by the first
bytes, not by the file name.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fieldagent.page import mbtiles, pmtiles_file
from fieldagent.page.pmtiles import MAGIC
from fieldagent.page.tiles import MapAbout, Tile, UnusableMap
from fieldagent.system.wording import describe_reason


def read_about(path: Path) -> MapAbout:
    """Return the map file's description. Raises UnusableMap if the map file cannot be used."""
    return pmtiles_file.read_about(path) if _is_pmtiles(path) else mbtiles.read_about(path)


def read_tile(path: Path, zoom: int, x: int, y: int) -> Tile | None:
    """Return a tile, or None if the map does not have it. `y` counts from the north. Raises
    UnusableMap if the map file cannot be read.
    """
    read_picture = pmtiles_file.read_tile if _is_pmtiles(path) else mbtiles.read_tile
    return read_picture(path, zoom, x, y)


def _is_pmtiles(path: Path) -> bool:
    try:
        # Refuse any other kind of file, because opening a pipe would block.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnusableMap(f"map-file {path} is not a file: name a file")
            return file.read(len(MAGIC)) == MAGIC
    except FileNotFoundError:
        reason = f"map-file {path} does not exist: copy it there, or remove map-file"
    except OSError as error:
        reason = f"map-file {path} cannot be read: {describe_reason(error)}"
    raise UnusableMap(reason)
