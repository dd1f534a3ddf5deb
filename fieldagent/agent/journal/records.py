"""Types in which other modules get the rows of the journal."""

from __future__ import annotations

import sqlite3
from zlib import crc32

from fieldagent.package.delivery import ChannelDelivery
from fieldagent.package.package import Channel, Package, Status
from fieldagent.package.payload import SOS_MARK, Identity
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple


@dataclass(frozen=True, slots=True)
class Segment:
    """Part of one Package in one transmission: the complete Package, or one fragment of `count`."""

    sequence: int
    position: int = 0
    count: int = 1


class DamagedPackage(Exception):
    """The stored Package differs from the accepted one, so it must not be transmitted."""

    def __init__(self, sequence: int) -> None:
        super().__init__(f"Package number {sequence} is damaged on the disk")
        self.sequence = sequence


RELAYED = b"relayed "
"""Prefix of a fingerprint in `arrived`: the item was relayed, not received."""

DAMAGED_DELIVERY = ChannelDelivery(Status.ERROR, "damaged")
"""Final state of a damaged Package on each channel where it still waited."""


def allow_relaying_again(db: sqlite3.Connection, sequence: int) -> None:
    """Delete the record that a neighbour's item was relayed, so that it is relayed again when the
    neighbour repeats its request. Call this function if this kit's copy is damaged. If the copy was
    already delivered, do nothing.
    """
    rows = db.execute(
        "SELECT digest FROM package WHERE sequence = ? AND id = -sequence AND NOT EXISTS"
        " (SELECT 1 FROM leg WHERE leg.sequence = package.sequence AND leg.status = ?)",
        (sequence, Status.DELIVERED),
    ).fetchall()
    for (identity,) in rows:
        # Find the record by the digest in `package` or by the neighbour's number in `carried`,
        # because the row in one of these tables may be damaged too.
        db.execute(
            "DELETE FROM arrived WHERE digest = ? OR (substr(digest, 1, ?) = ? AND (origin,"
            " sequence) IN (SELECT -origin, origin_sequence FROM carried WHERE sequence = ?))",
            (RELAYED + bytes(identity), len(RELAYED), RELAYED, sequence),
        )


def compute_crc(
    sequence: int,
    id_: int,
    body: str,
    digest: bytes,
    idempotency_key: str | None,
    accepted_at: float,
    expires: float | None,
    dated_at: float | None = None,
) -> int:
    """Return the CRC of a Package's accepted content, which never changes."""
    life = None if expires is None else float(expires)
    covered: tuple[object, ...] = (
        sequence,
        id_,
        body,
        digest,
        idempotency_key,
        float(accepted_at),
        life,
    )
    # A row without a date has a checksum that does not include the date, because an older version
    # wrote the row.
    covered += () if dated_at is None else (float(dated_at),)
    return crc32(repr(covered).encode())


class PackageFacts(NamedTuple):
    """Values of a Package that can be read without parsing its content. `accepted` and `ended` are
    in elapsed time.
    """

    sequence: int
    id: int
    digest: bytes
    accepted: float
    status: Status | None
    ended: float | None


class StoredPackage(NamedTuple):
    """A Package in the journal. `accepted`, `expires` and `ended` are in elapsed time."""

    sequence: int
    id: int
    package: Package
    digest: bytes
    idempotency_key: str | None
    accepted: float
    expires: float | None
    status: Status | None
    ended: float | None
    origin: int = 0
    """Station of the neighbour that sent the item. 0 for this kit."""
    origin_sequence: int = 0
    """Number that the neighbour gave the item. 0 for an item of this kit."""
    dated: float | None = None
    """Unix time in the transmitted item. None means the time of `accepted`: such rows are older
    than elapsed time."""
    undated: bool = False
    """True if the date is from an untrusted clock and may still be corrected (`journal.dating`)."""
    back: int = 0
    """For an item of an incident, the item's number minus the number of the item that raised the
    incident (see `envelope.Entry.items_back`)."""
    is_unproved: bool = False
    """True if the Package belongs to an SOS that an unauthenticated handheld has raised for
    itself."""

    @property
    def is_of_others(self) -> bool:
        """Return True if the Package is not from the kit's own people."""
        return bool(self.origin) or self.is_unproved


@dataclass(frozen=True, slots=True)
class EndedDelivery:
    """End of a channel delivery that must be recorded."""

    sequence: int
    channel: Channel
    delivery: ChannelDelivery


@dataclass(frozen=True, slots=True)
class Spent:
    bytes: int = 0
    credits: int = 0
    doubtful: int = 0
    """Additional credits that may have been spent, for messages that may have left."""


@dataclass(frozen=True, slots=True)
class StorageReceipt:
    """Receipt which shows that the hub or an addressee's agent stored the Package at Unix time
    `at`.
    """

    by: Identity
    at: float
    kind: str = "agent"
    """`hub` if the hub has the Package, `agent` if the addressee's agent has it."""

    def encode(self) -> dict[str, str | float]:
        """Return the receipt in the API's form: the receiver, the Unix time, and the `kind`."""
        receiver = self.by
        return {
            "id": receiver.id,
            "name": receiver.name,
            "type": receiver.type,
            "at": self.at,
            "kind": self.kind,
        }


_SOS = f"instr(body, '{SOS_MARK}') > 0"
LANE_SQL = (
    f"CASE WHEN {_SOS} THEN request_id ELSE sender END, CASE WHEN {_SOS} THEN -1.0 ELSE ? END"
)
"""SQL for two values of a row in `inbound`: its lane, and the time from which it is due. The lane
is the sender, and the time is a parameter of the query. An SOS has its own lane and is due before
all other payloads, so that a postponed payload of the same sender does not delay it."""
