"""Content of one message from an agent, and the check for repeated items."""

from __future__ import annotations

from dataclasses import field

from fieldagent.hub.contract import Bearer, Device, Estimate
from fieldagent.hub.records.fragments import UNAUTHENTICATED_COLUMN
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import Entry, compute_fingerprint


@dataclass(slots=True)
class KitMessage:
    """Content and result of one message."""

    device: Device
    """Device to which the items belong."""
    bearer: Bearer
    now: float
    relaying: Device | None = None
    """Device that relayed the items over its link; None if the items came over their own device's
    link."""
    estimate: Estimate | None = None
    is_authenticated: bool = True
    """True if the device that delivered the items is authenticated by a link's token or a tag."""
    doubt_reason: str = ""
    """Reason why the sender is in doubt: only an SOS counts then. Empty if there is no doubt."""
    revoked: float | None = None
    """Unix time of the revocation of the device or of the relaying device; None if neither is
    revoked."""
    items: int = 0
    duplicates: int = 0
    mismatches: list[str] = field(default_factory=list)
    """Confirmations that do not match the item that has the number now."""
    troubles: list[str] = field(default_factory=list)
    """Reasons why a part of the message is unusable. The whole message is then kept."""
    confirmed: list[int] = field(default_factory=list)
    """Items that the device has stored, without SOS."""
    buried: list[str] = field(default_factory=list)
    """Reasons why a part of a reassembled item is unusable. That part is already kept as a dead
    letter."""


def mark_arrived(db: Db, entry: Entry, brought: KitMessage) -> bool:
    """Record the arrival of an entry. Return True if the entry is new."""
    return bool(
        db.execute(
            f"INSERT INTO arrived (device, {UNAUTHENTICATED_COLUMN}, sequence, digest, at, sos)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING sequence",
            brought.device.id,
            # Keep doubtful entries apart, so that an invented entry cannot block a true entry.
            int(bool(brought.doubt_reason)),
            entry.sequence,
            compute_fingerprint(entry),
            brought.now,
            int(entry.sos),
        )
    )


def is_stored(db: Db, entry: Entry, brought: KitMessage) -> bool:
    """Return True if the device itself has sent the same entry under this number."""
    return bool(
        db.execute(
            f"SELECT 1 FROM arrived WHERE device = ? AND {UNAUTHENTICATED_COLUMN} = 0 AND"
            " sequence = ?"
            " AND digest = ?",
            brought.device.id,
            entry.sequence,
            compute_fingerprint(entry),
        )
    )
