"""What the journal holds of Packages, as those who read it see it."""

from __future__ import annotations

import sqlite3
from zlib import crc32

from fieldagent.package.delivery import Leg
from fieldagent.package.package import Channel, Package, Status
from fieldagent.package.payload import SOS_MARK, Identity
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple


@dataclass(frozen=True, slots=True)
class Piece:
    """What one transmission carries of one Package: all of it, or one fragment of `count`."""

    sequence: int
    position: int = 0
    count: int = 1


class DamagedPackage(Exception):
    """What the journal holds of a Package is not what was accepted: it must not be transmitted."""

    def __init__(self, sequence: int) -> None:
        super().__init__(f"Package number {sequence} is damaged on the disk")
        self.sequence = sequence


RELAYED = b"relayed "
"""In what has arrived, before the fingerprint of an item: not that it came, but that it was
relayed."""

DAMAGED = Leg(Status.ERROR, "damaged")
"""How it ends."""


def ask_anew(db: sqlite3.Connection, sequence: int) -> None:
    """Have a neighbour's item, which is damaged here and has left by no channel, relayed once more
    when its kit asks again."""
    rows = db.execute(
        "SELECT digest FROM package WHERE sequence = ? AND id = -sequence AND NOT EXISTS"
        " (SELECT 1 FROM leg WHERE leg.sequence = package.sequence AND leg.status = ?)",
        (sequence, Status.DELIVERED),
    ).fetchall()
    for (identity,) in rows:
        # Where one of the two is damaged as well, the other tells which it is.
        db.execute(
            "DELETE FROM arrived WHERE digest = ? OR (substr(digest, 1, ?) = ? AND (origin,"
            " sequence) IN (SELECT -origin, origin_sequence FROM carried WHERE sequence = ?))",
            (RELAYED + bytes(identity), len(RELAYED), RELAYED, sequence),
        )


def crc_of(
    sequence: int,
    id_: int,
    body: str,
    digest: bytes,
    idempotency_key: str | None,
    accepted: float,
    expires: float | None,
    dated: float | None = None,
) -> int:
    """Return the CRC of what was accepted, and never changes."""
    life = None if expires is None else float(expires)
    whole: tuple[object, ...] = (
        sequence,
        id_,
        body,
        digest,
        idempotency_key,
        float(accepted),
        life,
    )
    # Those from before there was a date have a check without one.
    whole += () if dated is None else (float(dated),)
    return crc32(repr(whole).encode())


class Known(NamedTuple):
    """What the journal tells of a Package without looking into it."""

    sequence: int
    id: int
    digest: bytes
    accepted: float
    status: Status | None
    ended: float | None


class Accepted(NamedTuple):
    """A Package as the journal holds it; `accepted`, `expires` and `ended` are lived time."""

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
    """The station of the neighbour whose it is; 0 is ourselves."""
    origin_sequence: int = 0
    """The number that the neighbour gave it."""
    dated: float | None = None
    """Unix time that it bears where it goes; None is `accepted`, of before lived time."""
    undated: bool = False
    """That date is a doubtful clock's and may be corrected yet (`journal.dating`)."""
    back: int = 0
    """Of an item of an incident: see `envelope.Entry.back`."""
    is_unproved: bool = False
    """It is of an SOS that an unproved handheld has raised for itself."""

    @property
    def is_of_others(self) -> bool:
        """Return whether it is not of the kit's own people."""
        return bool(self.origin) or self.is_unproved


@dataclass(frozen=True, slots=True)
class EndedLeg:
    """A leg that ended, to be recorded."""

    sequence: int
    channel: Channel
    leg: Leg


@dataclass(frozen=True, slots=True)
class Spent:
    bytes: int = 0
    credits: int = 0
    doubtful: int = 0
    """Credits beside these that may have been paid: nobody knows whether what they are for left."""


@dataclass(frozen=True, slots=True)
class Storage:
    """An addressee's agent has it on disk, since Unix time `at`."""

    by: Identity
    at: float
    kind: str = "agent"
    """`hub`: the hub itself has it."""

    def as_json(self) -> dict[str, str | float]:
        """Return it as the API tells it: who has it, since when (Unix time), and whether `agent` or
        `hub` says so."""
        who = self.by
        return {
            "id": who.id,
            "name": who.name,
            "type": who.type,
            "at": self.at,
            "kind": self.kind,
        }


_SOS = f"instr(body, '{SOS_MARK}') > 0"
LANE = f"CASE WHEN {_SOS} THEN request_id ELSE sender END, CASE WHEN {_SOS} THEN -1.0 ELSE ? END"
"""Of a row of `inbound`, in whose order it is handed over, and from when: its sender's and the
parameter's, and an SOS in its own and before all others. What a hook has put off for hours must not
hold one up."""
