"""Kits that a linked kit hears by radio, and the items that the hub sent to these kits through the
linked kit.

A kit that relays from the hub to its neighbours reports its neighbours over its link. The hub sends
an item through one linked carrier that hears the addressee: the nearest carrier. If the addressee
does not confirm the item within `NEXT_CARRIER_AFTER_S`, another carrier gets the item. The same
carrier gets the item again after `REGIVE_AFTER_S`, or if the carrier has another journal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fieldagent.hub.records.lease import IS_LINKED
from fieldagent.hub.records.ledger import WAITING_STATES
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple

STATIONS_MAX = 64
"""Largest number of neighbours that the hub stores for one kit."""
NEXT_CARRIER_AFTER_S = 900.0
REGIVE_AFTER_S = 86_400.0
"""Seconds after which a carrier gets an item again. This is the longest time for which a carrier
tries to relay it (`RETENTION_S` of the radio's `relay_down`)."""


def delete_neighbours(db: Db, carrier: int) -> None:
    """Delete the stored neighbours of a device, which then reports its neighbours again."""
    db.execute("DELETE FROM earshot WHERE carrier = ?", carrier)


def store_neighbours(db: Db, carrier: int, stations: Mapping[int, int]) -> list[int]:
    """Store the neighbours of a kit. `stations` maps each neighbour to the number of transmissions
    to it. Return the neighbours that are in the kit's workspace.
    """
    delete_neighbours(db, carrier)
    rows = []
    for station, hops in sorted(stations.items())[:STATIONS_MAX]:
        rows += db.execute(
            "INSERT INTO earshot (carrier, device, hops) SELECT own.id, device.id, ?"
            " FROM device JOIN device AS own ON own.workspace = device.workspace"
            " WHERE own.id = ? AND device.id = ? AND device.id <> own.id RETURNING device",
            *(hops, carrier, station),
        )
    return [device for (device,) in rows]


def can_relay(db: Db, carrier: int) -> bool:
    """Return True if an administrator allows the device to relay for other devices."""
    rows = db.execute("SELECT relay FROM device WHERE id = ?", carrier)
    return bool(rows and rows[0][0])


class NeighbourKit(NamedTuple):
    device: int
    hops: int


def list_without_link(db: Db, carrier: int, now: float) -> list[NeighbourKit]:
    """Return the neighbours that have waiting items but no link of their own now, nearest first."""
    rows = db.execute(
        "SELECT device.id, earshot.hops FROM earshot JOIN device ON device.id = earshot.device"
        f" WHERE earshot.carrier = ? AND device.disabled IS NULL AND NOT {IS_LINKED}"
        " AND EXISTS (SELECT 1 FROM delivery WHERE delivery.device = device.id"
        f" AND delivery.state IN {WAITING_STATES})"
        " ORDER BY earshot.hops, device.id",
        *(carrier, now),
    )
    return [NeighbourKit(*row) for row in rows]


_PARCEL = (
    "SELECT 1 FROM parcel WHERE parcel.item = delivery.item AND parcel.device = delivery.device"
)
IS_DUE = (
    # Radio capacity is small, so only three kinds are sent: pushes, items with a named addressee,
    # and SOS.
    "EXISTS (SELECT 1 FROM item WHERE item.id = delivery.item"
    " AND (item.sos = 1 OR item.source_device IS NULL OR item.target IS NOT NULL"
    " OR item.team IS NOT NULL)"
    # An item from one of the carrier's neighbours has been sent by radio already.
    " AND (item.source_device IS NULL OR item.source_device <> ? AND item.source_device NOT IN"
    " (SELECT earshot.device FROM earshot WHERE earshot.carrier = ?)))"
    f" AND NOT EXISTS ({_PARCEL} AND (parcel.carrier = ? AND parcel.journal = ?"
    " AND parcel.given > ? OR parcel.carrier <> ? AND parcel.given > ?))"
    " AND NOT EXISTS (SELECT 1 FROM earshot JOIN device ON device.id = earshot.carrier"
    " WHERE earshot.device = delivery.device AND device.relay = 1"
    " AND (earshot.hops < ? OR earshot.hops = ? AND earshot.carrier < ?)"
    f" AND {IS_LINKED} AND NOT EXISTS ({_PARCEL} AND parcel.carrier = earshot.carrier))"
)
"""SQL condition on a `delivery`: the hub should send it through this carrier now. Its parameters
are from `make_due_parameters`."""


def make_due_parameters(
    carrier: int, journal_number: int, hops: int, now: float
) -> Sequence[object]:
    """Return the parameters of `IS_DUE` in their order. `hops` is the number of transmissions
    between the carrier and the kit.
    """
    carrier_parameters = (carrier, journal_number, now - REGIVE_AFTER_S)
    others = (carrier, now - NEXT_CARRIER_AFTER_S)
    return (carrier, carrier, *carrier_parameters, *others, hops, hops, carrier, now)


def record_items_carried(
    db: Db, carrier: int, journal_number: int, items: Sequence[tuple[int, int]], now: float
) -> None:
    """Record that a carrier has these items on disk. `items` are pairs of item and device."""
    for item, device in items:
        db.execute(
            "INSERT INTO parcel (item, device, carrier, journal, given)"
            " SELECT item, device, ?, ?, ? FROM delivery WHERE item = ? AND device = ?"
            " ON CONFLICT (item, device, carrier)"
            " DO UPDATE SET journal = excluded.journal, given = excluded.given",
            *(carrier, journal_number, now, item, device),
        )
