"""The map on a kit: its tiles for the page, and files that are not maps."""

from __future__ import annotations

import random
import re
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from fieldagent.page import map_file
from fieldagent.page.tiles import UnusableMap
from tests.page.pmtiles_writer import MVT, numbered, stripes, write_pmtiles
from tests.processes import MODULE, PATIENCE, agent

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415478da"
    "63d8b97327000439021b4e6d7f6d0000000049454e44ae426082"
)
"""A PNG of one pixel."""


def write_map(path: Path, tile: bytes = PIXEL, zooms: range = range(3)) -> None:
    """Write a map of the whole world without one tile."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE metadata (name TEXT, value TEXT)")
        db.execute("CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data BLOB)")
        metadata = {
            "name": "Alps",
            "format": "png",
            "bounds": "-180,-85,180,85",
            "attribution": "<b>a surveyor</b>",
        }
        db.executemany("INSERT INTO metadata VALUES (?, ?)", metadata.items())
        rows = [(z, x, y, tile) for z in zooms for x in range(2**z) for y in range(2**z)]
        db.executemany("INSERT INTO tiles VALUES (?, ?, ?, ?)", rows[:-1])
        db.commit()


def test_mbtiles_rows_are_counted_from_the_north(tmp_path: Path) -> None:
    place = tmp_path / "alps #1.mbtiles"
    write_map(place)
    place.chmod(0o400)
    with agent(tmp_path, {"satellite-port": None, "map-file": str(place)}) as kit:
        document = kit.call("GET", "/api/map").body
        assert document["trouble"] is None
        assert document["map"]["address"] == "/map/{z}/{x}/{y}"
        assert (document["map"]["lowest"], document["map"]["highest"]) == (0, 2)
        assert document["map"]["bounds"] == [-180.0, -85.0, 180.0, 85.0]
        base = f"http://127.0.0.1:{kit.port}/map"
        with urlopen(f"{base}/2/3/3", timeout=PATIENCE) as answer:
            assert (answer.headers["content-type"], answer.read()) == ("image/png", PIXEL)
        # The missing tile is the most northern and eastern.
        for missing in ("2/3/0", "3/0/0", "2/4/0", "23/0/0", "2/-1/0", "2/x/0", "2/0/99999999999"):
            with pytest.raises(HTTPError) as refused:
                urlopen(f"{base}/{missing}", timeout=PATIENCE)
            assert refused.value.code == 404
            refused.value.close()
    assert {path.name for path in tmp_path.iterdir() if "alps" in path.name} == {place.name}


def write_vector_mbtiles(path: Path) -> None:
    write_map(path, tile=b"\x1f\x8b...")


def write_vectors(path: Path, layers: tuple[str, ...] = ("earth", "water")) -> None:
    """Write two levels of the world without the north-eastern tile."""
    tiles = {(1, x, y): stripes() for x in (0, 1) for y in (0, 1) if (x, y) != (1, 0)}
    tiles[0, 0, 0] = stripes()
    metadata: dict[str, object] = {"name": "Alps"}
    metadata["vector_layers"] = [{"id": each} for each in layers]
    write_pmtiles(path, tiles, MVT, metadata)


def write_other_layers(path: Path) -> None:
    write_vectors(path, ("transportation", "water"))


def write_truncated(path: Path) -> None:
    write_vectors(path)
    path.write_bytes(path.read_bytes()[:-1])


def write_another_version(path: Path) -> None:
    write_vectors(path)
    path.write_bytes(b"PMTiles\x02" + path.read_bytes()[8:])


def write_zstd_compressed(path: Path) -> None:
    write_vectors(path)
    content = path.read_bytes()
    path.write_bytes(content[:97] + b"\x04" + content[98:])


def write_picture(path: Path) -> None:
    path.write_bytes(PIXEL)


def nothing(path: Path) -> None:
    pass


@pytest.mark.full
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (write_vector_mbtiles, "does not hold pictures (format png)"),
        (write_truncated, "is cut short ("),
        (write_picture, "is not a PMTiles or MBTiles file"),
        (nothing, "does not exist"),
    ],
)
def test_unusable_map_file_is_reported_and_the_agent_runs(
    tmp_path: Path, make: object, why: str
) -> None:
    place = tmp_path / "map.mbtiles"
    assert callable(make)
    make(place)
    settings = {"satellite-port": None, "map-file": str(place)}
    with agent(tmp_path, settings) as kit:
        document = kit.call("GET", "/api/map").body
        assert document["map"] is None and why in document["trouble"]
        assert kit.call("GET", "/map/0/0/0").status == 404
        command = [*MODULE, "check", "--config", str(tmp_path / "agent.properties")]
        checked = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert why in checked.stderr
        assert [each for each in kit.call("GET", "/api/status").body["notices"] if why in each]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (write_other_layers, "has other layers than the map needs (transportation, water)"),
        (write_another_version, "is of PMTiles version 2, and not 3"),
        (write_zstd_compressed, "is compressed with zstd, not with gzip"),
    ],
)
def test_unusable_pmtiles_file_is_refused_with_the_reason(
    tmp_path: Path, make: Callable[[Path], None], why: str
) -> None:
    make(tmp_path / "alps.pmtiles")
    with pytest.raises(UnusableMap, match=re.escape(why)):
        map_file.read_about(tmp_path / "alps.pmtiles")


def test_exactly_the_existing_tiles_of_a_pmtiles_file_are_found(tmp_path: Path) -> None:
    place = tmp_path / "alps.pmtiles"
    every = {key: PIXEL + str(key).encode() for key in numbered(5)}
    # Some tiles equal the previous one, and some are missing.
    same = dict.fromkeys(list(every)[200:260], PIXEL)
    lacking = list(every)[300:1000:7]
    tiles = {key: tile for key, tile in (every | same).items() if key not in lacking}
    write_pmtiles(place, tiles, bounds=(5.5, 45.0, 11.25, 48.0))
    summary = map_file.read_about(place)
    assert summary == ("Alps", "us", 0, 5, (5.5, 45.0, 11.25, 48.0), False)
    for key in every:
        answer = map_file.read_tile(place, *key)
        assert (answer and answer.content) == tiles.get(key), key
    assert map_file.read_tile(place, 6, 0, 0) is None
    # A new file with that name must not be read with the directory of the earlier one.
    write_pmtiles(place, {(0, 0, 0): PIXEL + b"other"})
    other = map_file.read_tile(place, 0, 0, 0)
    assert other and other.content == PIXEL + b"other"
    assert map_file.read_tile(place, 1, 0, 0) is None


def test_damaged_pmtiles_file_is_read_or_refused(tmp_path: Path) -> None:
    """Each cut and each changed byte gives a readable map or UnusableMap."""
    place = tmp_path / "alps.pmtiles"
    write_pmtiles(place, {key: PIXEL + str(key).encode() for key in numbered(3)})
    whole = place.read_bytes()
    chance = random.Random(34)
    damaged = [whole[:length] for length in range(0, len(whole), 97)]
    for _ in range(600):
        at = chance.randrange(7, 127 if chance.random() < 0.5 else 1_500)
        damaged.append(whole[:at] + bytes([chance.randrange(256)]) + whole[at + 1 :])
    said = set()
    for content in damaged:
        place.write_bytes(content)
        for look in (
            lambda: map_file.read_about(place),
            lambda: map_file.read_tile(place, 3, 5, 2),
        ):
            try:
                look()
            except UnusableMap as unusable:
                assert str(place) in str(unusable)
                said.add(str(unusable).partition(str(place))[2][:20])
    assert len(said) > 5, said


def test_vector_map_is_served_until_its_file_is_removed(tmp_path: Path) -> None:
    place = tmp_path / "alps.pmtiles"
    write_vectors(place)
    with agent(tmp_path, {"satellite-port": None, "map-file": str(place)}) as kit:
        assert kit.call("GET", "/api/map").body["map"]["vector"]
        base = f"http://127.0.0.1:{kit.port}/map"
        with urlopen(f"{base}/1/0/0", timeout=PATIENCE) as answer:
            assert answer.headers["content-type"] == "application/vnd.mapbox-vector-tile"
            assert answer.headers["content-encoding"] == "gzip"
            assert answer.read() == stripes()
        with urlopen(f"{base}/1/1/0", timeout=PATIENCE) as answer:
            assert (answer.status, answer.read()) == (204, b"")
        place.unlink()
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{base}/1/0/1", timeout=PATIENCE)
        assert b"does not exist" in refused.value.read()
        refused.value.close()
        assert [
            each
            for each in kit.call("GET", "/api/status").body["notices"]
            if "does not exist" in each
        ]


COLUMNS = "0 AS tile_column, 0 AS tile_row"
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM n)"


@pytest.mark.parametrize(
    ("metadata", "tiles"),
    [
        (
            "",
            f"{ENDLESS} SELECT x AS zoom_level, {COLUMNS}, 'x' AS tile_data",
        ),
        (f"{ENDLESS} SELECT x AS name, x AS value", ""),
        ("", f"SELECT 1 AS zoom_level, {COLUMNS}, zeroblob(9e8) AS tile_data"),
    ],
    ids=["tiles", "metadata", "a huge tile"],
)
def test_endless_or_huge_sqlite_view_is_aborted(tmp_path: Path, metadata: str, tiles: str) -> None:
    place = tmp_path / "endless.mbtiles"
    write_map(place)
    with closing(sqlite3.connect(place)) as db:
        for name, query in (("metadata", metadata), ("tiles", tiles)):
            if query:
                db.execute(f"DROP TABLE {name}")
                source = "" if "zeroblob" in query else " FROM n"
                db.execute(f"CREATE VIEW {name} AS {query}{source}")
        db.commit()
    if tiles:
        with pytest.raises(UnusableMap):
            map_file.read_about(place)
        with pytest.raises(UnusableMap):
            map_file.read_tile(place, 1, 0, 1)
    else:
        assert map_file.read_about(place).name == ""
