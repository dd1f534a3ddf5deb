"""Maps that the library of the format's authors writes (PyPI pmtiles)."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pmtiles.reader import MmapSource, Reader
from pmtiles.tile import Compression, TileType, zxy_to_tileid
from pmtiles.writer import write

from fieldagent.page import map_file

HIGHEST = 7
ZOOMS = (*range(HIGHEST), *[HIGHEST] * 300)
"""Zooms of the compared tiles."""
SEA = b"\x89PNG sea"


def write_world(path: Path) -> None:
    """Write all tiles of the world up to HIGHEST, without a tenth of them. Half of them are sea."""
    chance = random.Random(3)
    with write(str(path)) as writer:
        places = [
            (zoom, x, y)
            for zoom in range(HIGHEST + 1)
            for x in range(2**zoom)
            for y in range(2**zoom)
        ]
        for place in sorted(places, key=lambda place: zxy_to_tileid(*place)):
            kind = chance.random()
            if kind < 0.9:
                content = SEA if kind < 0.45 else b"\x89PNG %d/%d/%d" % place
                writer.write_tile(zxy_to_tileid(*place), content)
        edge = 1_800_000_000
        box = {"min_lon_e7": -edge, "max_lon_e7": edge, "min_lat_e7": -850_000_000}
        center = {"center_zoom": 0, "center_lon_e7": 0, "center_lat_e7": 0}
        header = {"tile_type": TileType.PNG, "tile_compression": Compression.NONE}
        writer.finalize({**header, **box, "max_lat_e7": 850_000_000, **center}, {"name": "Alps"})


@pytest.mark.full
def test_tiles_are_read_as_by_the_library_of_pmtiles(tmp_path: Path) -> None:
    path = tmp_path / "world.pmtiles"
    write_world(path)
    about = map_file.read_about(path)
    assert (about.name, about.lowest, about.highest) == ("Alps", 0, HIGHEST)
    assert about.bounds == (-180.0, -85.0, 180.0, 85.0)
    chance = random.Random(7)
    # Both libraries read the directories again for each tile.
    places = [(zoom, chance.randrange(2**zoom), chance.randrange(2**zoom)) for zoom in ZOOMS]
    counts: Counter[str] = Counter()
    with path.open("rb") as file:
        reader: Any = Reader(MmapSource(file))  # type: ignore[no-untyped-call]
        assert reader.header()["leaf_directory_length"], "the map needs more than one directory"
        for place in places:
            theirs, ours = reader.get(*place), map_file.read_tile(path, *place)
            assert (ours.content if ours else None) == theirs, place
            counts["missing" if theirs is None else "sea" if theirs == SEA else "land"] += 1
    assert min(counts["missing"], counts["sea"], counts["land"]) > 10, counts
