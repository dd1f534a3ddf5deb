"""Notes with which a hub gets back, from a kit, items that its database has lost:
`docs/reference/ip-link.md`, "Restored hub database".

1. On each new link the kit names the last items sent and received, in a `BackupSummary`.
2. If the hub does not know them, it requests lists of the kit's items (Ask), one page at a time.
   It then requests the items that it is missing (ItemRequest).
3. The kit answers each request with one note (Inventory, Copies). It does not store the progress.
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
"""Number of bytes of an item's fingerprint that the notes contain."""
PAGE = 200
"""Maximum rows of an Inventory, and places of an ItemRequest."""
COPIES_BYTES = 16_384
"""Maximum bytes of all items in a Copies note, unless it has only one item. The limit is low, so
that an SOS does not wait long for the note."""


class BackupKind(IntEnum):
    SUMMARY = 6
    ASK = 7
    INVENTORY = 8
    FETCH = 9
    COPIES = 10


class Direction(IntEnum):
    SENT = 0
    """Sent by the kit."""
    GOT = 1
    """Received from the hub."""


class HeldItem(NamedTuple):
    """An item, identified by its number and the start of its fingerprint."""

    number: int = 0
    """Number of the item; 0 means no item."""
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class BackupSummary:
    """The last items in each direction that the hub is known to have stored."""

    last_sent: HeldItem = HeldItem()
    """The last item of the kit that the hub has acknowledged over IP."""
    hours: int = 0
    """Hours since the acknowledgement of `last_sent`."""
    last_got: HeldItem = HeldItem()
    """The last item from the hub."""

    def encode(self) -> bytes:
        """Return the note as CBOR, in the form for `decode_note`."""
        return cbor2.dumps([BackupKind.SUMMARY, *self.last_sent, self.hours, *self.last_got])


@dataclass(frozen=True, slots=True)
class InventoryRequest:
    """Request for one page of the list of the kit's items in one direction, from the first item
    whose place is above `after`.
    """

    direction: Direction
    after: int

    def encode(self) -> bytes:
        """Return the note as CBOR, in the form for `decode_note`."""
        return cbor2.dumps([BackupKind.ASK, self.direction, self.after])


class InventoryRow(NamedTuple):
    """Description of one item in an Inventory, without the item's contents."""

    place: int
    """Number of the item for an ItemRequest. The number increases with each row."""
    origin: int
    """For a sent item, the station that sent it (0: the kit itself). For a received item, its
    sender."""
    number: int
    """Number with which the item was sent or received."""
    digest: bytes
    at: int
    """Unix time when the item was sent or received."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """One page of the list of the kit's items in one direction: the items whose place is above
    `after`, oldest first.
    """

    direction: Direction
    after: int
    rows: tuple[InventoryRow, ...]
    dropped: tuple[int, int] = (0, 0)
    """Range of the numbers of items that the kit no longer has: the first number, and the number
    after the last."""

    @property
    def is_last(self) -> bool:
        """Return True if this is the last page, which has fewer than PAGE rows."""
        return len(self.rows) < PAGE

    def encode(self) -> bytes:
        """Return the note as CBOR. `decode_note` accepts at most PAGE rows."""
        rows = [[*row] for row in self.rows]
        return cbor2.dumps([BackupKind.INVENTORY, self.direction, self.after, rows, *self.dropped])


@dataclass(frozen=True, slots=True)
class ItemRequest:
    """Request for copies of items, by the `place` of each item in an Inventory."""

    direction: Direction
    places: tuple[int, ...]

    def encode(self) -> bytes:
        """Return the note as CBOR. `decode_note` accepts at most PAGE places."""
        return cbor2.dumps([BackupKind.FETCH, self.direction, [*self.places]])


class Copy(NamedTuple):
    """An item in the form in which it was sent or received."""

    place: int
    body: bytes
    """The item's envelope. Empty if the item is deleted."""
    state: str = ""
    """State of the item's incident at the kit, if the item is an SOS."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Some of the requested items, in order. The hub must request the other items again."""

    direction: Direction
    copies: tuple[Copy, ...]

    def encode(self) -> bytes:
        """Return the note as CBOR. `decode_note` accepts at most PAGE copies."""
        rows = [[*each] for each in self.copies]
        return cbor2.dumps([BackupKind.COPIES, self.direction, rows])


BackupNote = BackupSummary | InventoryRequest | Inventory | ItemRequest | Copies
KINDS = frozenset(BackupKind)


def decode_note(items: Sequence[Any]) -> BackupNote:
    """Parse a note whose first member is one of `KINDS`. Raises RemoteProtocolError for malformed
    data.
    """
    match items:
        case [BackupKind.SUMMARY, sent, sent_digest, hours, got, got_digest, *_] if _is_all_numbers(
            sent, hours, got
        ) and _is_all_digests(sent_digest, got_digest):
            return BackupSummary(HeldItem(sent, sent_digest), hours, HeldItem(got, got_digest))
        case [BackupKind.ASK, 0 | 1 as direction, after, *_] if _is_all_numbers(after):
            return InventoryRequest(Direction(direction), after)
        case [BackupKind.INVENTORY, 0 | 1 as direction, after, list(rows), first, end, *_] if (
            _is_all_numbers(after, first, end) and len(rows) <= PAGE and all(map(_is_row, rows))
        ):
            entries = tuple(InventoryRow(*row[:5]) for row in rows)
            return Inventory(Direction(direction), after, entries, (first, end))
        case [BackupKind.FETCH, 0 | 1 as direction, list(places), *_] if (
            _is_all_numbers(*places) and len(places) <= PAGE
        ):
            return ItemRequest(Direction(direction), tuple(places))
        case [BackupKind.COPIES, 0 | 1 as direction, list(rows), *_] if len(rows) <= PAGE and all(
            map(_is_copy, rows)
        ):
            return Copies(Direction(direction), tuple(Copy(*row[:3]) for row in rows))
    raise RemoteProtocolError("a kit's backup for the hub is damaged")


def _is_all_numbers(*values: Any) -> bool:
    return all(type(value) is int and 0 <= value < 2**63 for value in values)


def _is_all_digests(*values: Any) -> bool:
    return all(isinstance(value, bytes) and len(value) <= DIGEST_BYTES for value in values)


def _is_row(row: Any) -> bool:
    match row:
        case [place, origin, number, digest, at, *_]:
            return _is_all_numbers(place, origin, number, at) and _is_all_digests(digest)
    return False


def _is_copy(row: Any) -> bool:
    match row:
        case [place, bytes(), str(), *_]:
            return _is_all_numbers(place)
    return False
