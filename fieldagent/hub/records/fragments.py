"""Fragments of items that are larger than one message. The hub stores the fragments until the item
is complete.
"""

from __future__ import annotations

from typing import TypeAlias

from fieldagent.hub.store.contract import Db
from fieldagent.wire.envelope import Fragment

UNAUTHENTICATED_COLUMN = "origin"
"""Column of `payload` and `arrived`: 1 if the sender is not authenticated. Tables keep the names of
0.1, because hubs of two versions share them."""

FragmentedItem: TypeAlias = tuple[int, int, int]
"""Key of an item: the device, then 1 if the device is unauthenticated and relays the item (else 0),
then the item's number."""


def store_fragment(db: Db, key: FragmentedItem, part: Fragment, now: float) -> dict[int, bytes]:
    """Store one fragment. Return all stored fragments of the item by their position."""
    db.execute(
        f"INSERT INTO slice (device, {UNAUTHENTICATED_COLUMN}, sequence, count, position, slice,"
        " at)"
        f" VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (device, {UNAUTHENTICATED_COLUMN}, sequence,"
        " count, position)"
        " DO UPDATE SET slice = excluded.slice, at = excluded.at",
        *key,
        part.count,
        part.index,
        part.payload,
        now,
    )
    rows = db.execute(
        f"SELECT position, slice FROM slice WHERE device = ? AND {UNAUTHENTICATED_COLUMN} = ? AND"
        " sequence = ?"
        " AND count = ?",
        *key,
        part.count,
    )
    return {position: bytes(piece) for position, piece in rows}


def delete_fragments(db: Db, key: FragmentedItem, count: int, *, kept_position: int = -1) -> None:
    """Delete the fragments of an item that consists of `count` fragments, except the fragment at
    `kept_position`.
    """
    db.execute(
        f"DELETE FROM slice WHERE device = ? AND {UNAUTHENTICATED_COLUMN} = ? AND sequence = ?"
        " AND count = ?"
        " AND position <> ?",
        *key,
        count,
        kept_position,
    )


def can_have_missing(db: Db) -> bool:
    """Return True if the hub may have to ask a device for missing fragments, now or later."""
    return bool(db.execute(f"SELECT 1 FROM slice WHERE {UNAUTHENTICATED_COLUMN} = 0 LIMIT 1"))
