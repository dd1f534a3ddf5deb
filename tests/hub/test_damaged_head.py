"""A flipped bit of the version in the header of a hub's file is repaired or reported as damage, and
never treated as a later version.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest

from fieldagent.hub.store import schema
from fieldagent.hub.store.opening import open_store
from fieldagent.hub.store.schema import VERSION
from fieldagent.store.group import StoreFailed
from fieldagent.store.sqlite import compute_application_id
from tests.processes import administer, hub

VERSION_AT, MARK_AT = 60, 68
"""Offsets of `user_version` and `application_id`:
https://sqlite.org/fileformat2.html#the_database_header."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a hub's file with content that a hub has closed in order."""
    home = tmp_path_factory.mktemp("hub")
    database = home / "hub.sqlite3"
    administer(str(database), "init", "Alps")
    administer(str(database), "user", "add", "Ada")
    with hub(home, {"database": str(database)}) as running:
        assert running.stop() == 0
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return database


def copy_file(filled: Path, home: Path) -> Path:
    return Path(shutil.copyfile(filled, home / "hub.sqlite3"))


def flip_bit(file: Path, at: int, bit: int) -> None:
    with file.open("r+b") as head:
        head.seek(at + bit // 8)
        (was,) = head.read(1)
        head.seek(at + bit // 8)
        head.write(bytes([was ^ 0x80 >> bit % 8]))


def read_head(file: Path) -> tuple[int, int]:
    with closing(sqlite3.connect(file)) as connection:
        ((version,),) = connection.execute("PRAGMA user_version")
        ((mark,),) = connection.execute("PRAGMA application_id")
        return version, mark


def write_head(file: Path, version: int, mark: int) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute(f"PRAGMA application_id = {mark}")


def dump_rows(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as connection:
        return [line for line in connection.iterdump() if line.startswith("INSERT")]


@pytest.mark.parametrize("at", [VERSION_AT, MARK_AT])
@pytest.mark.parametrize("bit", range(32))
def test_flipped_bit_of_the_version_is_repaired_without_loss(
    filled: Path, tmp_path: Path, at: int, bit: int, caplog: pytest.LogCaptureFixture
) -> None:
    file = copy_file(filled, tmp_path)
    before = dump_rows(file)
    flip_bit(file, at, bit)
    version, _ = read_head(file)
    with caplog.at_level(logging.WARNING):
        open_store(str(file)).close()
    assert read_head(file) == (VERSION, compute_application_id(VERSION))
    assert dump_rows(file) == before
    said = f"version {version} in the head, version {VERSION} in its tables"
    assert (said in caplog.text) == (at == VERSION_AT)


def test_hub_starts_on_a_file_with_a_damaged_version(filled: Path, tmp_path: Path) -> None:
    file = copy_file(filled, tmp_path)
    flip_bit(file, VERSION_AT, 21)
    with hub(tmp_path, {"database": str(file)}) as running:
        assert any(f"version {VERSION + 1024} in the head," in line for line in running.output())
        assert "Ada" in [each["name"] for each in administer(str(file), "user", "list")]


@pytest.mark.parametrize("mark", [0, compute_application_id(VERSION)])
def test_damaged_version_without_matching_tables_is_reported(
    filled: Path, tmp_path: Path, mark: int
) -> None:
    file = copy_file(filled, tmp_path)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP TABLE kit_sms")
    write_head(file, VERSION + 1024, mark)
    before = dump_rows(file)
    with pytest.raises(StoreFailed) as refused:
        open_store(str(file))
    assert f"is damaged: its head has version {VERSION + 1024}, but its tables" in str(
        refused.value
    )
    assert "restore it from a backup" in str(refused.value)
    assert "later version" not in str(refused.value)
    assert read_head(file) == (VERSION + 1024, mark)
    assert dump_rows(file) == before


@pytest.fixture
def a_program_of_the_next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    step = "CREATE TABLE later (x {int});"
    monkeypatch.setattr(schema, "STEPS", {**schema.STEPS, VERSION: step})
    monkeypatch.setattr(schema, "VERSION", VERSION + 1)


@pytest.mark.usefixtures("a_program_of_the_next_version")
def test_damaged_earlier_version_is_proved_by_migration(filled: Path, tmp_path: Path) -> None:
    file = copy_file(filled, tmp_path)
    write_head(file, VERSION | 1024, compute_application_id(VERSION))
    open_store(str(file)).close()
    assert read_head(file) == (VERSION + 1, compute_application_id(VERSION + 1))


@pytest.mark.usefixtures("a_program_of_the_next_version")
def test_failed_proof_of_an_earlier_version_changes_nothing(filled: Path, tmp_path: Path) -> None:
    """Header and tables are both damaged, which one flipped bit cannot cause."""
    file = copy_file(filled, tmp_path)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE later (y)")
    write_head(file, VERSION | 1024, compute_application_id(VERSION))
    before = dump_rows(file)
    with pytest.raises(StoreFailed, match=f"is damaged: its head has version {VERSION | 1024}"):
        open_store(str(file))
    assert dump_rows(file) == before


def test_application_ids_of_versions_differ_by_more_than_one_bit() -> None:
    for version in range(1, 200):
        marks = {compute_application_id(other) for other in range(1, 32_768) if other != version}
        (mark,) = struct.unpack(">I", struct.pack(">i", compute_application_id(version)))
        assert not marks & {mark ^ 1 << bit for bit in range(32)}
