"""Last contact with each device: time, bearer, program version and position."""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.hub.store.contract import Db, insert
from fieldagent.package.package import Location
from fieldagent.system.lazy_named_tuple import NamedTuple

SMS_NEWS = "kit sms"
"""Topic that is announced when an SMS to a kit may be due."""


def record_contact(db: Db, device: int, bearer: str, now: float) -> None:
    """Record that a device was heard. If the device was deleted meanwhile, do nothing."""
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
    """Unix time of the position."""
    altitude: float | None = None
    """Altitude in metres. None if unknown."""
    speed: float | None = None
    """Metres per second over ground."""
    course: float | None = None
    """Degrees from true north."""


def make_position(place: Location, at: float) -> Position:
    """Return a location as a device's position at the Unix time `at`."""
    motion = place.speed_over_ground, place.course_over_ground
    return Position(place.latitude, place.longitude, at, place.altitude, *motion)


_PLACE = ("latitude", "longitude", "position_at", "altitude", "speed", "course")
"""Columns in the order of `Position`."""

_LATER = "excluded.position_at >= coalesce(contact.position_at, excluded.position_at)"
_ALL = "(device) DO UPDATE SET at = excluded.at, way = excluded.way, " + ", ".join(
    f"{column} = CASE WHEN {_LATER} THEN excluded.{column} ELSE contact.{column} END"
    for column in _PLACE
)


def record_contacts(
    db: Db, positions: Mapping[int, Position | None], bearer: str, now: float
) -> None:
    """Record that these devices were heard. Also store the positions that they reported. An older
    position that arrives late does not replace a newer position.
    """
    rows = [
        (device, now, bearer, *(position or [None] * len(_PLACE)))
        # Sort the devices, so that all processes lock the rows in the same order and cannot
        # deadlock.
        for device, position in sorted(positions.items())
    ]
    columns = ("device", "at", "way", *_PLACE)
    insert(db, "contact", columns, rows, conflict=_ALL)


def store_version(db: Db, device: int, version: str) -> None:
    """Store the version of the device's program. Call `record_contact` first."""
    db.execute("UPDATE contact SET version = ? WHERE device = ?", version, device)


def store_position(db: Db, device: int, position: Location, time: int, now: float) -> None:
    """Store the device's newest position. Call `record_contact` first. An older position that
    arrives late does not replace a newer position. A time in the future is replaced by `now`.
    """
    at = min(float(time), now)
    values = ", ".join(f"{column} = ?" for column in _PLACE)
    db.execute(
        f"UPDATE contact SET {values} WHERE device = ?"
        " AND (position_at IS NULL OR position_at <= ?)",
        *make_position(position, at),
        device,
        at,
    )
