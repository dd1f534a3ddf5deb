"""The map that a kit carries: its tiles as the page asks for them, and a file that is none."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.processes import MODULE, PATIENCE, agent

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415478da"
    "63d8b97327000439021b4e6d7f6d0000000049454e44ae426082"
)
"""A PNG of one point."""


def write_map(path: Path, tile: bytes = PIXEL, zooms: range = range(3)) -> None:
    """Of the whole world, but for one tile."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE metadata (name TEXT, value TEXT)")
        db.execute("CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data BLOB)")
        told = {
            "name": "Alps",
            "format": "png",
            "bounds": "-180,-85,180,85",
            "attribution": "<b>a surveyor</b>",
        }
        db.executemany("INSERT INTO metadata VALUES (?, ?)", told.items())
        rows = [(z, x, y, tile) for z in zooms for x in range(2**z) for y in range(2**z)]
        db.executemany("INSERT INTO tiles VALUES (?, ?, ?, ?)", rows[:-1])
        db.commit()


def test_tiles_are_counted_from_the_north(tmp_path: Path) -> None:
    place = tmp_path / "alps #1.mbtiles"
    write_map(place)
    place.chmod(0o400)
    with agent(tmp_path, {"satellite-port": None, "map-file": str(place)}) as kit:
        told = kit.call("GET", "/api/map").body
        assert told["trouble"] is None
        assert told["map"]["address"] == "/map/{z}/{x}/{y}"
        assert (told["map"]["lowest"], told["map"]["highest"]) == (0, 2)
        assert told["map"]["bounds"] == [-180.0, -85.0, 180.0, 85.0]
        base = f"http://127.0.0.1:{kit.port}/map"
        with urlopen(f"{base}/2/3/3", timeout=PATIENCE) as answer:
            assert (answer.headers["content-type"], answer.read()) == ("image/png", PIXEL)
        # The one that is not there is the most northern and eastern.
        for missing in ("2/3/0", "3/0/0", "2/4/0", "23/0/0", "2/-1/0", "2/x/0", "2/0/99999999999"):
            with pytest.raises(HTTPError) as refused:
                urlopen(f"{base}/{missing}", timeout=PATIENCE)
            assert refused.value.code == 404
            refused.value.close()
    assert {path.name for path in tmp_path.iterdir() if "alps" in path.name} == {place.name}


def vector(path: Path) -> None:
    write_map(path, tile=b"\x1f\x8b...")


def no_database(path: Path) -> None:
    path.write_bytes(PIXEL)


def nothing(path: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (vector, "holds no pictures (format png)"),
        (no_database, "is no MBTiles file"),
        (nothing, "is not there"),
    ],
)
def test_what_is_no_map_is_said_and_hinders_nothing(tmp_path: Path, make: object, why: str) -> None:
    place = tmp_path / "map.mbtiles"
    assert callable(make)
    make(place)
    settings = {"satellite-port": None, "map-file": str(place)}
    with agent(tmp_path, settings) as kit:
        told = kit.call("GET", "/api/map").body
        assert told["map"] is None and why in told["trouble"]
        assert kit.call("GET", "/map/0/0/0").status == 404
        command = [*MODULE, "check", "--config", str(tmp_path / "agent.properties")]
        checked = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert why in checked.stderr
