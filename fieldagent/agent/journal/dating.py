"""Corrects the dates of Packages that got their dates from an untrusted clock.

Until a Package is first transmitted, its date follows each correction of the clock. Once a Package
has left, its date stays, because receivers recognise the Package by its complete content, including
the date.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.journal.records import compute_crc
from fieldagent.package.package import Channel, Location, Package, Waypoint
from fieldagent.package.reading import read_stored_package
from fieldagent.package.writing import make_canonical
from fieldagent.system.elapsed_time import CLOCK_SET_FROM_S


def list_foremost_undated(journal: Journal, channel: Channel, limit: int) -> list[int]:
    """Return the first `limit` Packages without a fixed date that wait on `channel`, ordered by
    priority and age.
    """
    rows = journal.read(
        "SELECT sequence FROM undated CROSS JOIN leg USING (sequence)"
        " WHERE channel = ? AND status IS NULL ORDER BY -priority, sequence LIMIT ?",
        channel,
        limit,
    )
    return [sequence for (sequence,) in rows]


def mark_undated(db: sqlite3.Connection, sequence: int) -> None:
    """Mark a Package whose date is from an untrusted clock, so that its date is corrected before it
    leaves.
    """
    db.execute("INSERT INTO undated VALUES (?)", (sequence,))


def store_dates(sequences: Iterable[int], offset: float) -> Operation[None]:
    """Return the operation that fixes the dates of these Packages. Each date is the elapsed time of
    acceptance plus `offset`. A date that differs from this by less than CLOCK_SET_FROM_S seconds is
    not changed.
    """

    def store(db: sqlite3.Connection) -> None:
        for sequence in sequences:
            if db.execute("DELETE FROM undated WHERE sequence = ?", (sequence,)).rowcount:
                _redate(db, sequence, offset)

    return store


def _redate(db: sqlite3.Connection, sequence: int, offset: float) -> None:
    (row,) = db.execute(
        "SELECT id, body, digest, idempotency_key, accepted, expires, dated, crc FROM package"
        " WHERE sequence = ?",
        (sequence,),
    )
    id_, body, digest, key, accepted, expires, dated, crc = row
    date = accepted + offset
    if dated is None or abs(date - dated) < CLOCK_SET_FROM_S:
        return
    if crc != compute_crc(sequence, id_, body, digest, key, accepted, expires, dated):
        # Skip a damaged row, because the code that reads the row reports the damage.
        return
    try:
        package = read_stored_package(body)
    except ValueError:
        return
    body = make_canonical(_stamp_again(package, dated, date))
    crc = compute_crc(sequence, id_, body, digest, key, accepted, expires, date)
    db.execute(
        "UPDATE package SET body = ?, dated = ?, crc = ? WHERE sequence = ?",
        (body, date, crc, sequence),
    )


def _stamp_again(package: Package, old_time: float, now: float) -> Package:
    """Return the Package with the new date. Keep the time of a position if the caller set it,
    because that time may come from a GPS receiver.
    """
    item = package.item
    if isinstance(item, Location | Waypoint) and item.timestamp == datetime.fromtimestamp(
        old_time, UTC
    ):
        return replace(package, item=replace(item, timestamp=None)).with_time(now)
    return package
