"""Actions that follow new positions of kits. They run in the transaction that stores the
positions.
"""

from __future__ import annotations

from collections.abc import Sequence

from fieldagent.hub.contract import Device
from fieldagent.hub.part import KitPosition, list_hub_parts
from fieldagent.hub.records import contact
from fieldagent.hub.store.contract import Db
from fieldagent.package.coordinates import DatedPlace
from fieldagent.package.package import Location, PositionSource


def make_kit_position(device: Device, place: Location, sent_at: float, now: float) -> KitPosition:
    """Return a kit's position from a location that was sent at `sent_at` (Unix time). If the
    location contains a time, that time applies. A time in the future is replaced by `now`.
    """
    at = sent_at if place.timestamp is None else place.timestamp.timestamp()
    position = DatedPlace(place.latitude, place.longitude, min(at, now))
    return KitPosition(device.id, device.workspace, device.member, device.name, position)


def is_current(place: Location) -> bool:
    """Return False if the location only repeats an earlier location, as an SOS may do."""
    return place.source is not PositionSource.LAST


def store_location(db: Db, device: Device, place: Location, sent_at: int, now: float) -> None:
    """Store a kit's location, sent at `sent_at` (Unix time), and call the parts of the hub that act
    on positions.
    """
    contact.store_position(db, device.id, place, sent_at, now)
    if is_current(place):
        act_on_positions(db, [make_kit_position(device, place, sent_at, now)], now)


def act_on_positions(db: Db, positions: Sequence[KitPosition], now: float) -> None:
    """Call the parts of the hub that act on positions. The positions of each kit are in the order
    of their times.
    """
    ordered = sorted(positions, key=lambda each: (each.device, each.position.at))
    for part in list_hub_parts():
        if ordered and part.take_positions is not None:
            part.take_positions(db, ordered, now)
