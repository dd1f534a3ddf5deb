"""Content of one message from an agent, and the checks whether an item arrived before, and whether
a kit may relay items of another kit.
"""

from __future__ import annotations

from dataclasses import field

from fieldagent.hub.access.directory import IS_ACCEPTED
from fieldagent.hub.contract import Bearer, Device, Estimate
from fieldagent.hub.records.fragments import UNAUTHENTICATED_COLUMN
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import Entry, compute_fingerprint


@dataclass(slots=True)
class KitMessage:
    """Content of one message from an agent, and the results of processing it."""

    device: Device
    """Device to which the items belong."""
    bearer: Bearer
    now: float
    relaying: Device | None = None
    """Device that relayed the items over its link. None if the items arrived over the link of their
    own device."""
    estimate: Estimate | None = None
    is_authenticated: bool = True
    """True if a link's token or a tag authenticates the device that delivered the items."""
    doubt_reason: str = ""
    """Reason why the sender is in doubt, or an empty text. If there is a doubt, the hub accepts
    only an SOS."""
    unauthenticated: set[int] = field(default_factory=set)
    """Numbers of the items that the device has marked as received by radio from an unauthenticated
    handheld."""
    revoked: float | None = None
    """Unix time when the device or the relaying device was revoked; None if neither is revoked."""
    items: int = 0
    duplicates: int = 0
    mismatches: list[str] = field(default_factory=list)
    """Confirmations that do not match the item that now has the confirmed number."""
    troubles: list[str] = field(default_factory=list)
    """Reasons why a part of the message cannot be used. If there is a reason, the hub stores the
    whole message."""
    confirmed: list[int] = field(default_factory=list)
    """Numbers of items that the device has stored, without SOS items."""
    buried: list[str] = field(default_factory=list)
    """Reasons why a reassembled item, or a part of it, cannot be used. The hub has already stored
    the item as a dead letter."""


def mark_arrived(db: Db, entry: Entry, message: KitMessage) -> bool:
    """Record an entry under its device, number and content. Return False if the same entry arrived
    before.
    """
    return bool(
        db.execute(
            f"INSERT INTO arrived (device, {UNAUTHENTICATED_COLUMN}, sequence, digest, at, sos)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING sequence",
            message.device.id,
            # Record doubtful entries separately, so that a forged entry cannot block a genuine
            # entry.
            int(bool(message.doubt_reason)),
            entry.sequence,
            compute_fingerprint(entry),
            message.now,
            int(entry.sos),
        )
    )


def is_stored(db: Db, entry: Entry, message: KitMessage) -> bool:
    """Return True if the device itself has sent the same entry under this number."""
    return bool(
        db.execute(
            f"SELECT 1 FROM arrived WHERE device = ? AND {UNAUTHENTICATED_COLUMN} = 0 AND"
            " sequence = ?"
            " AND digest = ?",
            message.device.id,
            entry.sequence,
            compute_fingerprint(entry),
        )
    )


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
