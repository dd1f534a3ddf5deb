"""Consequences of new positions, in the transaction that stores them."""

from __future__ import annotations

from collections.abc import Sequence

from fieldagent.hub.contract import Device
from fieldagent.hub.places import fences, routes
from fieldagent.hub.places.crossing import DatedPlace
from fieldagent.hub.places.fences import KitPosition
from fieldagent.hub.records import contact
from fieldagent.hub.store.contract import Db, one_of
from fieldagent.package.package import Location, PositionSource


def kit_position(device: Device, place: Location, said: float, now: float) -> KitPosition:
    """Return a kit's position from a location sent at `said` (Unix time). The location's own time
    counts, and a future time counts as now.
    """
    at = said if place.timestamp is None else place.timestamp.timestamp()
    position = DatedPlace(place.latitude, place.longitude, min(at, now))
    return KitPosition(device.id, device.workspace, device.member, device.name, position)


def says_where(place: Location) -> bool:
    """Return True if the location shows where its kit was at that time. An SOS may repeat an
    earlier location.
    """
    return place.source is not PositionSource.LAST


def note(db: Db, device: Device, place: Location, said: int, now: float) -> None:
    """Store a kit's location, sent at `said` (Unix time), and check fences and routes."""
    contact.note_position(db, device.id, place, said, now)
    if says_where(place):
        take(db, [kit_position(device, place, said, now)], now)


def take(db: Db, positions: Sequence[KitPosition], now: float) -> None:
    """Check fences and routes against new positions, in the order of each kit's own times."""
    if not positions or not _anything_is_watched(db, positions):
        return
    ordered = sorted(positions, key=lambda each: (each.device, each.position.at))
    fences.judge(db, ordered, now)
    routes.note_arrivals(db, ordered, now)


def _anything_is_watched(db: Db, positions: Sequence[KitPosition]) -> bool:
    """Return True if a fence or a route may apply. One query, because most positions have
    neither.
    """
    workspaces, those = one_of(db, sorted({each.workspace for each in positions}))
    among, devices = one_of(db, sorted({each.device for each in positions}))
    return bool(
        db.execute(
            f"SELECT 1 FROM fence WHERE workspace {workspaces} UNION ALL"
            f" SELECT 1 FROM route WHERE ended IS NULL AND device {among} LIMIT 1",
            *those,
            *devices,
        )
    )
