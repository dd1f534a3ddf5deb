"""How far the journal had come, kept in a small file beside it: what is lost with its log, or with
the whole file, is known by that, and no number comes back.

Two places are written in turn, each with a check: one that is torn leaves the other. It follows
each commit without a sync of its own, which once a minute is enough: after a power cut it may be
behind the journal, and is never ahead.

Behind the two stands which version of the journal's tables opened it last: where the journal itself
tells a later one, a bit of its head has changed, unless a later program has written this too.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import time
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.private import make_private_file

CHOSEN_IDS = 2**30
"""From here on ids are left to callers: ours would run out of 32 bits behind one of theirs."""
SYNC_EVERY = 60.0
"""Seconds."""
_FORM = struct.Struct(">4sIQQQ")
_MAGIC = b"FAhw"
_PLACE = 64
"""Bytes between the two."""
_VERSION = struct.Struct(">4sI")
_VERSION_MAGIC, _VERSION_PLACE = b"FAjv", 2 * _PLACE


class HighWater(NamedTuple):
    """The highest number of a Package, its id, and the highest number of a payload."""

    package: int = 0
    id: int = 0
    payload: int = 0


def of(db: sqlite3.Connection) -> HighWater:
    """Return the highest numbers in `db`, in some microseconds: indexes hold them."""
    numbers = dict(db.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    ((kept, forgotten),) = db.execute(
        "SELECT (SELECT max(id) FROM package WHERE id < ?), (SELECT max(id) FROM forgotten)",
        (CHOSEN_IDS,),
    )
    highest = max(kept or 0, forgotten or 0, 0)
    return HighWater(numbers.get("package") or 0, highest, numbers.get("inbound") or 0)


def raise_to(db: sqlite3.Connection, mark: HighWater) -> HighWater:
    """See that nothing up to `mark` is given again, and return how many of each number `db` knows
    nothing of. Within a transaction."""
    known = of(db)
    missing = HighWater(*(max(0, there - here) for there, here in zip(mark, known, strict=True)))
    for table, highest in (
        ("package", max(mark.package, known.package)),
        ("inbound", max(mark.payload, known.payload)),
    ):
        db.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
        db.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (table, highest))
    db.execute(
        "INSERT INTO forgotten VALUES (1, ?1) ON CONFLICT (one) DO UPDATE SET id = max(id, ?1)",
        (mark.id,),
    )
    return missing


class HighWaterFile:
    """Raises OSError."""

    def __init__(self, path: Path) -> None:
        make_private_file(path)
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._turn, self.mark = max(
            (self._read(place) for place in (0, 1)), default=(0, HighWater())
        )
        self._synced = time.monotonic()

    def _read(self, place: int) -> tuple[int, HighWater]:
        numbers = self._checked(_FORM, _MAGIC, place * _PLACE)
        return (numbers[0], HighWater(*numbers[1:])) if numbers else (0, HighWater())

    def _checked(self, form: struct.Struct, magic: bytes, place: int) -> tuple[int, ...]:
        """Return the numbers that stand there, none where its check or its magic is not right."""
        content = os.pread(self._file, form.size + 4, place)
        record, check = content[: form.size], content[form.size :]
        if len(record) < form.size or check != crc32(record).to_bytes(4, "big"):
            return ()
        signature, *numbers = form.unpack(record)
        return tuple(numbers) if signature == magic else ()

    def _put(self, record: bytes, place: int) -> None:
        os.pwrite(self._file, record + crc32(record).to_bytes(4, "big"), place)

    @property
    def version(self) -> int:
        """Return the version of the tables, as who opened the journal last knows them; 0 where
        nobody has said."""
        return next(iter(self._checked(_VERSION, _VERSION_MAGIC, _VERSION_PLACE)), 0)

    def open_as(self, version: int) -> None:
        """Say, before any of its tables is changed, that a program which knows `version` opens the
        journal. What cannot be written is written at the next start."""
        if version == self.version:
            return
        with suppress(OSError):
            self._put(_VERSION.pack(_VERSION_MAGIC, version), _VERSION_PLACE)
            self.sync()

    def follow(self, mark: HighWater) -> None:
        """Write `mark` down, which is in the journal by now. What cannot be written is written with
        the next."""
        if mark == self.mark:
            return
        turn = self._turn + 1
        record = _FORM.pack(_MAGIC, turn & 0xFFFFFFFF, *mark)
        with suppress(OSError):
            self._put(record, turn % 2 * _PLACE)
            self._turn, self.mark = turn, mark
            if time.monotonic() - self._synced >= SYNC_EVERY:
                self.sync()

    def sync(self) -> None:
        """Put what was written on disk. Raises OSError."""
        os.fdatasync(self._file)
        self._synced = time.monotonic()

    def close(self) -> None:
        with suppress(OSError):
            self.sync()
        os.close(self._file)
