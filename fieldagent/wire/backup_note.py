"""Notes by which a hub takes back from a kit what its database has lost:
`docs/reference/ip-link.md`, "A hub's database that is an older one".

1. Over each new link the kit says in a Holding what it sent and got last.
2. A hub that does not know that asks what the kit has (Ask), a page at a time, and for what it
   lacks of that (Fetch).
3. The kit answers each with one note, Inventory and Copies. It keeps nothing of where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import cbor2

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import RemoteProtocolError

DIGEST_BYTES = 4
"""Of the start of an item's fingerprint."""
PAGE = 200
"""Rows of a Inventory at most, and places of a Fetch."""
COPIES_BYTES = 16_384
"""Bytes of the items in a Copies at most, where there are several: an SOS that comes meanwhile
waits for no more than these."""


class BackupKind(IntEnum):
    HOLDING = 6
    ASK = 7
    INVENTORY = 8
    FETCH = 9
    COPIES = 10


class Direction(IntEnum):
    SENT = 0
    """By the kit."""
    GOT = 1
    """From the hub."""


class Held(NamedTuple):
    """An item by its number and the start of its fingerprint."""

    number: int = 0
    """0: there is none."""
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class Holding:
    """What the kit knows the hub to have had."""

    sent: Held = Held()
    """The last of its own items that the hub has acknowledged over IP."""
    hours: int = 0
    """Since then."""
    got: Held = Held()
    """The last item that came from the hub."""

    def encode(self) -> bytes:
        """Return the note as CBOR."""
        return cbor2.dumps([BackupKind.HOLDING, *self.sent, self.hours, *self.got])


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask for what the kit has in one direction, behind a place."""

    direction: Direction
    after: int

    def encode(self) -> bytes:
        """Return the note as CBOR."""
        return cbor2.dumps([BackupKind.ASK, self.direction, self.after])


class InventoryRow(NamedTuple):
    """An item in a Inventory."""

    place: int
    """By which it is fetched; rises."""
    origin: int
    """Of one sent: the station whose it is, 0 of the kit itself. Of one that came: its sender."""
    number: int
    """Under which it was sent, or came."""
    digest: bytes
    at: int
    """Unix time."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What the kit has in one direction behind a place, the oldest first."""

    direction: Direction
    after: int
    rows: tuple[InventoryRow, ...]
    dropped: tuple[int, int] = (0, 0)
    """From and up to, not including it: numbers of which the kit has nothing any more."""

    @property
    def is_last(self) -> bool:
        """Return whether nothing follows this page: it has fewer than PAGE rows."""
        return len(self.rows) < PAGE

    def encode(self) -> bytes:
        """Return the note as CBOR; `read` takes no more than PAGE rows."""
        rows = [[*row] for row in self.rows]
        return cbor2.dumps([BackupKind.INVENTORY, self.direction, self.after, rows, *self.dropped])


@dataclass(frozen=True, slots=True)
class Fetch:
    """Ask for these items."""

    direction: Direction
    places: tuple[int, ...]

    def encode(self) -> bytes:
        """Return the note as CBOR; `read` takes no more than PAGE places."""
        return cbor2.dumps([BackupKind.FETCH, self.direction, [*self.places]])


class Copy(NamedTuple):
    """An item as it was sent or came."""

    place: int
    body: bytes
    """An envelope; empty: it is gone."""
    state: str = ""
    """Of an SOS: how its incident stands, as the kit knows it."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Some of what was asked for, in that order; what is not named is to be asked for again."""

    direction: Direction
    copies: tuple[Copy, ...]

    def encode(self) -> bytes:
        """Return the note as CBOR; `read` takes no more than PAGE copies."""
        rows = [[*each] for each in self.copies]
        return cbor2.dumps([BackupKind.COPIES, self.direction, rows])


BackupNote = Holding | Ask | Inventory | Fetch | Copies
KINDS = frozenset(BackupKind)


def read(items: Sequence[Any]) -> BackupNote:
    """Read a note whose first member is one of `KINDS`. Raises RemoteProtocolError."""
    match items:
        case [BackupKind.HOLDING, sent, sent_digest, hours, got, got_digest, *_] if _all_numbers(
            sent, hours, got
        ) and _are_digests(sent_digest, got_digest):
            return Holding(Held(sent, sent_digest), hours, Held(got, got_digest))
        case [BackupKind.ASK, 0 | 1 as direction, after, *_] if _all_numbers(after):
            return Ask(Direction(direction), after)
        case [BackupKind.INVENTORY, 0 | 1 as direction, after, list(rows), first, end, *_] if (
            _all_numbers(after, first, end) and len(rows) <= PAGE and all(map(_is_row, rows))
        ):
            entries = tuple(InventoryRow(*row[:5]) for row in rows)
            return Inventory(Direction(direction), after, entries, (first, end))
        case [BackupKind.FETCH, 0 | 1 as direction, list(places), *_] if (
            _all_numbers(*places) and len(places) <= PAGE
        ):
            return Fetch(Direction(direction), tuple(places))
        case [BackupKind.COPIES, 0 | 1 as direction, list(rows), *_] if len(rows) <= PAGE and all(
            map(_is_copy, rows)
        ):
            return Copies(Direction(direction), tuple(Copy(*row[:3]) for row in rows))
    raise RemoteProtocolError("what a kit has for the hub is damaged")


def _all_numbers(*values: Any) -> bool:
    return all(type(value) is int and 0 <= value < 2**63 for value in values)


def _are_digests(*values: Any) -> bool:
    return all(isinstance(value, bytes) and len(value) <= DIGEST_BYTES for value in values)


def _is_row(row: Any) -> bool:
    match row:
        case [place, origin, number, digest, at, *_]:
            return _all_numbers(place, origin, number, at) and _are_digests(digest)
    return False


def _is_copy(row: Any) -> bool:
    match row:
        case [place, bytes(), str(), *_]:
            return _all_numbers(place)
    return False
