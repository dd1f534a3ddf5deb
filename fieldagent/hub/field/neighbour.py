"""Checks whether a kit may relay items of another kit."""

from __future__ import annotations

from fieldagent.hub.access.directory import IS_ACCEPTED
from fieldagent.hub.contract import Device
from fieldagent.hub.store.contract import Db


def find_neighbour(db: Db, carrier: Device, station_number: int) -> Device | None:
    """Return the device with this station number in the workspace of `carrier`, which relays its
    items. The device may be revoked. Return None if there is no such device.
    """
    rows = db.execute(
        "SELECT id, workspace, member, name, imei FROM device WHERE id = ? AND workspace = ?"
        f" AND {IS_ACCEPTED}",
        station_number,
        carrier.workspace,
    )
    return Device(*rows[0]) if rows else None


def find_doubt(db: Db, carrier: Device, neighbour: Device, is_proved: bool) -> str:
    """Return the reason why the hub does not accept relayed items as the neighbour's own, or an
    empty text if it accepts them.
    """
    ((relay, tagged),) = db.execute(
        "SELECT relaying.relay, neighbour.air_key IS NOT NULL"
        " FROM device relaying, device neighbour"
        " WHERE relaying.id = ? AND neighbour.id = ?",
        carrier.id,
        neighbour.id,
    )
    if not relay:
        return (
            f"an item of {neighbour.name}, for which {carrier.name} may not relay: allow it,"
            f" and accept its items, with `fieldagent hub device relay {carrier.id}`"
        )
    if tagged and not is_proved:
        return (
            f"an item of {neighbour.name}, whose messages have a tag, in a message of"
            f" {carrier.name} without a tag: give {carrier.name} a satellite-key too"
        )
    return ""
