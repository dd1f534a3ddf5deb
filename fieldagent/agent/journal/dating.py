"""Packages that were dated by a clock that nobody trusts, until the first of their transmissions.

Their dates follow the clock that long: once one has left, whoever has it recognises it by all that
is in it, its date among that.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.journal.records import crc_of
from fieldagent.package.package import Channel, Location, Package, Waypoint
from fieldagent.package.reading import read_package
from fieldagent.package.writing import canonical
from fieldagent.system.lived_time import SET


def foremost_undated(journal: Journal, channel: Channel, limit: int) -> list[int]:
    """Return the foremost without a date of those that wait on that channel."""
    rows = journal.read(
        "SELECT sequence FROM undated CROSS JOIN leg USING (sequence)"
        " WHERE channel = ? AND status IS NULL ORDER BY -priority, sequence LIMIT ?",
        channel,
        limit,
    )
    return [sequence for (sequence,) in rows]


def mark(db: sqlite3.Connection, sequence: int) -> None:
    """Mark a Package as one whose time is to be set right once the clock is."""
    db.execute("INSERT INTO undated VALUES (?)", (sequence,))


def fix(sequences: Iterable[int], offset: float) -> Operation[None]:
    """Give them for good the date that lived time and `offset` make by now."""

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
    if dated is None or abs(date - dated) < SET:
        return
    if crc != crc_of(sequence, id_, body, digest, key, accepted, expires, dated):
        # Who reads it tells that it is damaged.
        return
    try:
        package = read_package(json.loads(body))
    except ValueError:
        return
    body = canonical(_restamped(package, dated, date))
    crc = crc_of(sequence, id_, body, digest, key, accepted, expires, date)
    db.execute(
        "UPDATE package SET body = ?, dated = ?, crc = ? WHERE sequence = ?",
        (body, date, crc, sequence),
    )


def _restamped(package: Package, was: float, now: float) -> Package:
    """A position whose time the caller gave keeps that: it may be a receiver's."""
    item = package.item
    if isinstance(item, Location | Waypoint) and item.timestamp == datetime.fromtimestamp(was, UTC):
        return replace(package, item=replace(item, timestamp=None)).stamped(now)
    return package
