"""What one message of an agent's turned out to hold, and which of it is here for the first time."""

from __future__ import annotations

from dataclasses import field

from fieldagent.hub.contract import Bearer, Device, Estimate
from fieldagent.hub.records.slices import DOUBTED
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import Entry, fingerprint


@dataclass(slots=True)
class KitMessage:
    """What one message turned out to hold."""

    device: Device
    """Whose items these are."""
    bearer: Bearer
    now: float
    relaying: Device | None = None
    """Whose link brought them, where that is another's."""
    estimate: Estimate | None = None
    proved: bool = True
    """Who brought them has proved who they are: by a link's token, or a tag."""
    doubt: str = ""
    """Why these are not believed to be the device's: nothing but an SOS of theirs counts."""
    revoked: float | None = None
    """Since when the device is revoked, or who brought them."""
    items: int = 0
    duplicates: int = 0
    mismatches: list[str] = field(default_factory=list)
    """Confirmations that are not about the item that has their number now."""
    troubles: list[str] = field(default_factory=list)
    """Why part of the message cannot be used: all of it is kept."""
    confirmed: list[int] = field(default_factory=list)
    """Items that the device has stored, and which are no SOS."""
    buried: list[str] = field(default_factory=list)
    """Why part of what its last fragment made whole cannot be used: that is kept already."""


def mark_arrived(db: Db, entry: Entry, brought: KitMessage) -> bool:
    """Note that it is here; return whether it is new."""
    return bool(
        db.execute(
            f"INSERT INTO arrived (device, {DOUBTED}, sequence, digest, at, sos)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING sequence",
            brought.device.id,
            # Apart, so that what somebody invents never stands in the way of what is true.
            int(bool(brought.doubt)),
            entry.sequence,
            fingerprint(entry),
            brought.now,
            int(entry.sos),
        )
    )


def was_there(db: Db, entry: Entry, brought: KitMessage) -> bool:
    """Return whether the device itself said the same under this number."""
    return bool(
        db.execute(
            f"SELECT 1 FROM arrived WHERE device = ? AND {DOUBTED} = 0 AND sequence = ?"
            " AND digest = ?",
            brought.device.id,
            entry.sequence,
            fingerprint(entry),
        )
    )
