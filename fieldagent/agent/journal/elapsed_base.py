"""Stores the values from which elapsed time continues after a restart (`system.elapsed_time`)."""

from __future__ import annotations

import sqlite3
from zlib import crc32

from fieldagent.system.elapsed_time import ClockBase


def read_known(db: sqlite3.Connection) -> ClockBase | None:
    """Return the stored base of elapsed time. Return None if no base is stored or the stored base
    is damaged.
    """
    row = db.execute("SELECT boot, since_boot, lived, ahead, trusted, crc FROM lived").fetchone()
    if row is None:
        return None
    boot, since_boot, elapsed, ahead, trusted, crc = row
    base = ClockBase(boot, since_boot, elapsed, ahead, bool(trusted))
    return base if crc == _compute_crc(base) else None


def store_base(db: sqlite3.Connection, base: ClockBase) -> None:
    """Store the base of elapsed time, with its checksum."""
    row = (*base, _compute_crc(base))
    db.execute("INSERT OR REPLACE INTO lived VALUES (1, ?, ?, ?, ?, ?, ?)", row)


def _compute_crc(base: ClockBase) -> int:
    return crc32(repr(tuple(base)).encode())
