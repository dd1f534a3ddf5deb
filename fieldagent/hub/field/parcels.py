"""Parcels for kits without a link.

Each parcel contains an item or command, which another kit relays by radio. The answers of the kits
are authenticated too.
"""

from __future__ import annotations

from collections.abc import Collection

from fieldagent.hub.access.device_keys import read_secrets
from fieldagent.hub.contract import Device
from fieldagent.hub.field.envelope_packing import WaitingItem, list_waiting, make_introduction
from fieldagent.hub.records import commands, stations_in_range
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import Parcel
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.envelope import Entry
from fieldagent.wire.parcel import BODY_MAX_BYTES, DOWN, wrap

LOOK_AT = 16
"""Largest number of items of one device that are considered for one envelope."""
MINUTES = 1440
"""Minutes for which a carrier tries to deliver an item that does not expire."""


class DueItem(NamedTuple):
    item: int
    device: int
    entry: Entry
    """Entry that contains the parcel."""


class DueCommand(NamedTuple):
    device: int
    number: int
    entry: Entry
    """Entry that contains the parcel."""


def list_due(
    db: Db, carrier: Device, journal_number: int, now: float, excluded: Collection[tuple[int, int]]
) -> list[DueItem]:
    """Return the items that a linked kit should relay to kits in its range, except the pairs of
    item and device in `excluded`.
    """
    if not stations_in_range.can_relay(db, carrier.id):
        return []
    parcels = []
    for device, hops in stations_in_range.list_without_link(db, carrier.id, now):
        secrets = read_secrets(db, device)
        if not secrets:
            continue
        due_parameters = stations_in_range.make_due_parameters(
            carrier.id, journal_number, hops, now
        )
        for each in list_waiting(
            db,
            device,
            now,
            due_condition=stations_in_range.IS_DUE,
            parameters=due_parameters,
            limit=LOOK_AT,
        ):
            addressee = Device(device, carrier.workspace, 0, "")
            parcel = _make_parcel(db, addressee, each, secrets[0], now)
            if parcel is not None and (each.item, device) not in excluded:
                parcels.append(DueItem(each.item, device, parcel))
    return parcels


def list_due_commands(
    db: Db, carrier: Device, journal_number: int, now: float, excluded: Collection[tuple[int, int]]
) -> list[DueCommand]:
    """Return the commands that a linked kit should relay, except the pairs of device and number in
    `excluded`.
    """
    if not stations_in_range.can_relay(db, carrier.id):
        return []
    parcels = []
    for each in commands.list_to_carry(db, carrier.id, journal_number, now):
        device, number = each.device, each.entry.sequence
        secrets = read_secrets(db, device)
        if secrets and (device, number) not in excluded:
            body = wrap([each.entry], secrets[0], DOWN)
            minutes = max(1, min(MINUTES, int((each.expires - now) / 60)))
            parcel = Entry(0, Parcel(body, device, minutes), int(each.given_at))
            parcels.append(DueCommand(device, number, parcel))
    return parcels


def _make_parcel(
    db: Db, device: Device, item: WaitingItem, secret: bytes, now: float
) -> Entry | None:
    """Return an entry with the parcel for an item, or None if the parcel is too large for the
    radio.
    """
    introductions = [entry for _, entry in make_introduction(db, device, item.sender)]
    body = wrap([*introductions, *item.entries], secret, DOWN, origin=item.sender)
    if len(body) > BODY_MAX_BYTES:
        return None
    ((expires,),) = db.execute(
        "SELECT expires FROM delivery WHERE item = ? AND device = ?", item.item, device.id
    )
    minutes = MINUTES if expires is None else int((expires - now) / 60)
    return Entry(0, Parcel(body, device.id, max(1, minutes)), item.entry.time)
