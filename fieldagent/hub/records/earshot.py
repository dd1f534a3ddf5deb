"""Which kits a linked kit hears by radio, and which items it was given for them.

A kit that brings down what the hub has for its neighbours tells whom it hears, over its link. An
item goes to one of those that hear its addressee: the nearest that is linked. Another has its turn
where nothing was confirmed for `NEXT_AFTER`, and the same one again after `AGAIN_AFTER`, or with
another journal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fieldagent.hub.records.lease import IS_LINKED
from fieldagent.hub.records.ledger import WAITS
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple

STATIONS_MAX = 64
"""That a kit may tell of."""
NEXT_AFTER = 900.0
AGAIN_AFTER = 86_400.0
"""Seconds; for the second a carrier tries, at most (`agent.mesh.relay_down`)."""


def forget(db: Db, carrier: int) -> None:
    """Forget whom a device hears: it tells anew whom it hears."""
    db.execute("DELETE FROM earshot WHERE carrier = ?", carrier)


def note(db: Db, carrier: int, stations: Mapping[int, int]) -> list[int]:
    """Write down whom a kit hears, over how many transmissions; return those of its workspace."""
    forget(db, carrier)
    rows = []
    for station, hops in sorted(stations.items())[:STATIONS_MAX]:
        rows += db.execute(
            "INSERT INTO earshot (carrier, device, hops) SELECT own.id, device.id, ?"
            " FROM device JOIN device AS own ON own.workspace = device.workspace"
            " WHERE own.id = ? AND device.id = ? AND device.id <> own.id RETURNING device",
            *(hops, carrier, station),
        )
    return [device for (device,) in rows]


def may_bring(db: Db, carrier: int) -> bool:
    """Return whether an administrator lets it speak for others."""
    rows = db.execute("SELECT relay FROM device WHERE id = ?", carrier)
    return bool(rows and rows[0][0])


class HeardKit(NamedTuple):
    device: int
    hops: int


def without_link(db: Db, carrier: int, now: float) -> list[HeardKit]:
    """Return whom it hears that wait for something, and have no link of their own now, the nearest
    first."""
    rows = db.execute(
        "SELECT device.id, earshot.hops FROM earshot JOIN device ON device.id = earshot.device"
        f" WHERE earshot.carrier = ? AND device.disabled IS NULL AND NOT {IS_LINKED}"
        " AND EXISTS (SELECT 1 FROM delivery WHERE delivery.device = device.id"
        f" AND delivery.state IN {WAITS})"
        " ORDER BY earshot.hops, device.id",
        *(carrier, now),
    )
    return [HeardKit(*row) for row in rows]


_PARCEL = (
    "SELECT 1 FROM parcel WHERE parcel.item = delivery.item AND parcel.device = delivery.device"
)
IS_DUE = (
    # What somebody has pushed, what names its addressee, and an SOS: the air is small.
    "EXISTS (SELECT 1 FROM item WHERE item.id = delivery.item"
    " AND (item.sos = 1 OR item.source_device IS NULL OR item.target IS NOT NULL"
    " OR item.team IS NOT NULL)"
    # What one of them sent is on the air already.
    " AND (item.source_device IS NULL OR item.source_device <> ? AND item.source_device NOT IN"
    " (SELECT earshot.device FROM earshot WHERE earshot.carrier = ?)))"
    f" AND NOT EXISTS ({_PARCEL} AND (parcel.carrier = ? AND parcel.journal = ?"
    " AND parcel.given > ? OR parcel.carrier <> ? AND parcel.given > ?))"
    " AND NOT EXISTS (SELECT 1 FROM earshot JOIN device ON device.id = earshot.carrier"
    " WHERE earshot.device = delivery.device AND device.relay = 1"
    " AND (earshot.hops < ? OR earshot.hops = ? AND earshot.carrier < ?)"
    f" AND {IS_LINKED} AND NOT EXISTS ({_PARCEL} AND parcel.carrier = earshot.carrier))"
)
"""Of a `delivery`: whether a carrier is to be given it now (`due_parameters`)."""


def due_parameters(carrier: int, journal: int, hops: int, now: float) -> Sequence[object]:
    """Return the parameters of `IS_DUE`, in its order; `hops` are the transmissions over which the
    carrier hears the kit."""
    mine = (carrier, journal, now - AGAIN_AFTER)
    others = (carrier, now - NEXT_AFTER)
    return (carrier, carrier, *mine, *others, hops, hops, carrier, now)


def note_given(
    db: Db, carrier: int, journal: int, items: Sequence[tuple[int, int]], now: float
) -> None:
    """Note that a carrier has on disk these items, each for a device."""
    for item, device in items:
        db.execute(
            "INSERT INTO parcel (item, device, carrier, journal, given)"
            " SELECT item, device, ?, ?, ? FROM delivery WHERE item = ? AND device = ?"
            " ON CONFLICT (item, device, carrier)"
            " DO UPDATE SET journal = excluded.journal, given = excluded.given",
            *(carrier, journal, now, item, device),
        )
