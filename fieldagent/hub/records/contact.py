"""What was heard of each device last: when, how, from what version, and where it was."""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.hub.store.contract import Db, insert
from fieldagent.package.package import Location
from fieldagent.system.lazy_named_tuple import NamedTuple

SMS_NEWS = "kit sms"
"""Announced when something may be due by SMS to a kit."""


def note(db: Db, device: int, bearer: str, now: float) -> None:
    """Write down that a device was heard of; nothing for one that was deleted meanwhile."""
    db.execute(
        "INSERT INTO contact (device, at, way) SELECT id, ?, ? FROM device WHERE id = ?"
        " ON CONFLICT (device) DO UPDATE SET at = excluded.at, way = excluded.way",
        now,
        bearer,
        device,
    )


class Position(NamedTuple):
    latitude: float
    longitude: float
    at: float
    """Unix time."""


_LATER = "excluded.position_at >= coalesce(contact.position_at, excluded.position_at)"
_ALL = "(device) DO UPDATE SET at = excluded.at, way = excluded.way, " + ", ".join(
    f"{column} = CASE WHEN {_LATER} THEN excluded.{column} ELSE contact.{column} END"
    for column in ("latitude", "longitude", "position_at")
)


def note_all(db: Db, heard: Mapping[int, Position | None], bearer: str, now: float) -> None:
    """Write down that these devices were heard of, and where they were, if they said so. A
    position that took longer on its way does not replace a later one."""
    rows = [
        (device, now, bearer, *(position or (None, None, None)))
        for device, position in sorted(heard.items())  # each process locks them in this order
    ]
    columns = ("device", "at", "way", "latitude", "longitude", "position_at")
    insert(db, "contact", columns, rows, conflict=_ALL)


def note_version(db: Db, device: int, version: str) -> None:
    """Note the program's version, after `note`."""
    db.execute("UPDATE contact SET version = ? WHERE device = ?", version, device)


def note_position(db: Db, device: int, position: Location, time: int, now: float) -> None:
    """Note the newest position, after `note`. One that took longer on its way does not replace a
    later one; a date in the future counts as now."""
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
