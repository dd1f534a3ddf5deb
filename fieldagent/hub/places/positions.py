"""What follows from where kits were, in the transaction that takes their positions in."""

from __future__ import annotations

from collections.abc import Sequence

from fieldagent.hub.contract import Device
from fieldagent.hub.places import fences
from fieldagent.hub.places.crossing import DatedPlace
from fieldagent.hub.places.fences import KitPosition
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import Location, PositionSource


def kit_position(
    device: Device, place: Location, said: float, now: float, accuracy: float = 0.0
) -> KitPosition:
    """Return where a kit was, as a position says that it sent at `said` (Unix time). Its own time
    counts, and one in the future as now."""
    at = said if place.timestamp is None else place.timestamp.timestamp()
    position = DatedPlace(place.latitude, place.longitude, min(at, now), accuracy)
    return KitPosition(device.id, device.workspace, device.member, device.name, position)


def says_where(place: Location) -> bool:
    """Return whether it says where its kit was then: an SOS may repeat an earlier one."""
    return place.source is not PositionSource.LAST


def take(db: Db, sightings: Sequence[KitPosition], now: float) -> None:
    """Judge fences by new positions of kits, each kit's in the order of their own times."""
    ordered = sorted(sightings, key=lambda each: (each.device, each.position.at))
    if ordered:
        fences.judge(db, ordered, now)
