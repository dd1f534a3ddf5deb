"""What was heard of each device last: when, how, from what version, and where it was."""

from __future__ import annotations

from fieldagent.hub.store.contract import Db
from fieldagent.package.package import Location

RADIO = "radio"
"""Beside the bearers: another device brought what this one sent."""


def note(db: Db, device: int, way: str, now: float) -> None:
    """Write down that a device was heard of; nothing for one that was deleted meanwhile."""
    db.execute(
        "INSERT INTO contact (device, at, way) SELECT id, ?, ? FROM device WHERE id = ?"
        " ON CONFLICT (device) DO UPDATE SET at = excluded.at, way = excluded.way",
        now,
        way,
        device,
    )


def note_version(db: Db, device: int, version: str) -> None:
    """After `note`."""
    db.execute("UPDATE contact SET version = ? WHERE device = ?", version, device)


def note_position(db: Db, device: int, position: Location, time: int, now: float) -> None:
    """After `note`. One that took longer on its way does not replace a later one; a date in the
    future counts as now."""
    at = min(float(time), now)
    db.execute(
        "UPDATE contact SET latitude = ?, longitude = ?, position_at = ? WHERE device = ?"
        " AND (position_at IS NULL OR position_at <= ?)",
        position.latitude,
        position.longitude,
        at,
        device,
        at,
    )
