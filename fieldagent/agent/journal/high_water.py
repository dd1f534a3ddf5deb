"""Stores the highest numbers of the journal in a small file beside it. If the journal's log or the
whole journal is lost, this file shows how much is lost, and prevents a number from being used
twice.

The numbers are written to two records in turn, each with a checksum, so that an incomplete write
leaves the other record intact. The file is written after each commit, but synced only once a
minute. After a power cut, the numbers in the file may be lower than those in the journal, but never
higher.

After the two records, the file contains the table version of the program that last opened the
journal. If the journal's header shows a later version than this file, a bit of the header has
changed.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import time
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from fieldagent.system.folder import make_private_file
from fieldagent.system.lazy_named_tuple import NamedTuple

CHOSEN_IDS = 2**30
"""First id that the agent itself never assigns. If the agent assigned ids above the high id of a
caller, these ids could exceed 32 bits."""
SYNC_INTERVAL_S = 60.0
"""Minimum seconds between two syncs."""
_FORM = struct.Struct(">4sIQQQ")
_MAGIC = b"FAhw"
_PLACE = 64
"""Bytes from the start of the first record to the start of the second record."""
_VERSION = struct.Struct(">4sI")
_VERSION_MAGIC, _VERSION_PLACE = b"FAjv", 2 * _PLACE


class HighWater(NamedTuple):
    """Highest sequence of a Package, highest id below CHOSEN_IDS, and highest number of a
    payload.
    """

    package: int = 0
    id: int = 0
    payload: int = 0


def read_highest_numbers(db: sqlite3.Connection) -> HighWater:
    """Return the highest numbers in `db`. Indexes make this fast: it takes only microseconds."""
    numbers = dict(db.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    ((highest_kept, forgotten),) = db.execute(
        "SELECT (SELECT max(id) FROM package WHERE id < ?), (SELECT max(id) FROM forgotten)",
        (CHOSEN_IDS,),
    )
    highest = max(highest_kept or 0, forgotten or 0, 0)
    return HighWater(numbers.get("package") or 0, highest, numbers.get("inbound") or 0)


def raise_numbers(db: sqlite3.Connection, mark: HighWater) -> HighWater:
    """Make sure that no number up to `mark` is used again. For each kind of number, return how many
    are missing in `db`. Call this function within a transaction.
    """
    highest_known = read_highest_numbers(db)
    missing = HighWater(
        *(
            max(0, highest_there - highest_here)
            for highest_there, highest_here in zip(mark, highest_known, strict=True)
        )
    )
    for table, highest in (
        ("package", max(mark.package, highest_known.package)),
        ("inbound", max(mark.payload, highest_known.payload)),
    ):
        db.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
        db.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (table, highest))
    db.execute(
        "INSERT INTO forgotten VALUES (1, ?1) ON CONFLICT (one) DO UPDATE SET id = max(id, ?1)",
        (mark.id,),
    )
    return missing


class HighWaterFile:
    """The file with the highest numbers beside the journal. Raises OSError."""

    def __init__(self, path: Path) -> None:
        make_private_file(path)
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._turn, self.mark = max((self._read(slot) for slot in (0, 1)), default=(0, HighWater()))
        self._synced = time.monotonic()

    def _read(self, place: int) -> tuple[int, HighWater]:
        numbers = self._check_record(_FORM, _MAGIC, place * _PLACE)
        return (numbers[0], HighWater(*numbers[1:])) if numbers else (0, HighWater())

    def _check_record(self, form: struct.Struct, magic: bytes, place: int) -> tuple[int, ...]:
        """Return the numbers of a record, or an empty tuple if its checksum or its magic bytes are
        wrong.
        """
        content = os.pread(self._file, form.size + 4, place)
        record, check = content[: form.size], content[form.size :]
        if len(record) < form.size or check != crc32(record).to_bytes(4, "big"):
            return ()
        signature, *numbers = form.unpack(record)
        return tuple(numbers) if signature == magic else ()

    def _write_record(self, record: bytes, place: int) -> None:
        os.pwrite(self._file, record + crc32(record).to_bytes(4, "big"), place)

    @property
    def version(self) -> int:
        """Return the table version of the program that last opened the journal, or 0 if unknown."""
        return next(iter(self._check_record(_VERSION, _VERSION_MAGIC, _VERSION_PLACE)), 0)

    def open_as(self, version: int) -> None:
        """Record that a program with tables of this `version` opens the journal. Call this function
        before any table is changed. If writing fails, the next start writes the version.
        """
        if version == self.version:
            return
        with suppress(OSError):
            self._write_record(_VERSION.pack(_VERSION_MAGIC, version), _VERSION_PLACE)
            self.sync()

    def follow(self, mark: HighWater) -> None:
        """Write `mark`, which is already in the journal. If writing fails, the next mark is written
        instead.
        """
        if mark == self.mark:
            return
        turn = self._turn + 1
        record = _FORM.pack(_MAGIC, turn & 0xFFFFFFFF, *mark)
        with suppress(OSError):
            self._write_record(record, turn % 2 * _PLACE)
            self._turn, self.mark = turn, mark
            if time.monotonic() - self._synced >= SYNC_INTERVAL_S:
                self.sync()

    def sync(self) -> None:
        """Sync the file to disk. Raises OSError."""
        os.fdatasync(self._file)
        self._synced = time.monotonic()

    def close(self) -> None:
        with suppress(OSError):
            self.sync()
        os.close(self._file)
