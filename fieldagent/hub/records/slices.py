"""What has come of items that are larger than a message, until they are whole."""

from __future__ import annotations

from typing import TypeAlias

from fieldagent.hub.store.contract import Db
from fieldagent.wire.envelope import Fragment

DOUBTED = "origin"
"""The column of `slice` and of `arrived` that is 1 where nobody has proved that the device sent it.
Tables keep the names that 0.1 has: hubs of two versions work on the same ones."""

Whose: TypeAlias = tuple[int, int, int]
"""Device, 1 where somebody else brings it whose word is doubted, and its number."""


def keep(db: Db, whose: Whose, part: Fragment, now: float) -> dict[int, bytes]:
    """Store one fragment; all that are there of the same item come back."""
    db.execute(
        f"INSERT INTO slice (device, {DOUBTED}, sequence, count, position, slice, at)"
        f" VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (device, {DOUBTED}, sequence, count, position)"
        " DO UPDATE SET slice = excluded.slice, at = excluded.at",
        *whose,
        part.count,
        part.index,
        part.slice,
        now,
    )
    rows = db.execute(
        f"SELECT position, slice FROM slice WHERE device = ? AND {DOUBTED} = ? AND sequence = ?"
        " AND count = ?",
        *whose,
        part.count,
    )
    return {position: bytes(piece) for position, piece in rows}


def drop(db: Db, whose: Whose, count: int, *, but: int = -1) -> None:
    """Remove the fragments of an item that was cut into `count`, all but the one at position
    `but`."""
    db.execute(
        f"DELETE FROM slice WHERE device = ? AND {DOUBTED} = ? AND sequence = ? AND count = ?"
        " AND position <> ?",
        *whose,
        count,
        but,
    )


def may_lack(db: Db) -> bool:
    """Return whether a device may have to be asked for some, now or later."""
    return bool(db.execute(f"SELECT 1 FROM slice WHERE {DOUBTED} = 0 LIMIT 1"))
