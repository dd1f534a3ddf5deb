"""Interface between packing and the entries that are sent to the peer with Packages: confirmations
of the peer's items, and our identity.

For the hub, the entries are receipts and reports of missing fragments (`hub_piggyback`). On the
air, they are acknowledgements, our name, and the request to relay (`radio_piggyback`). Each
implementation decides when its entries are worth a transmission of their own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import field
from typing import Protocol

from fieldagent.agent.journal.inbound import PendingStage, PendingUnreadableReport
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import Entry, encode
from fieldagent.wire.seal import seal


class Draft:
    """Unfinished envelope of one transmission. `origin` is the sender's number, 0 if the link
    identifies the sender. The envelope is tagged with `key`, or encrypted with it if `is_sealed`.
    If `is_packed`, texts are compressed.
    """

    def __init__(
        self, origin: int, key: bytes | None, *, is_sealed: bool = False, is_packed: bool = False
    ) -> None:
        self.entries: list[Entry] = []
        self.body = b""
        """Encoded content, without the tag."""
        self.origin = origin
        self._key = key
        self._sealed = is_sealed
        self._packed = is_packed

    def __len__(self) -> int:
        """Return the size of the encoded envelope in bytes."""
        return len(self.body)

    def begin(self, entry: Entry, body: bytes) -> None:
        """Start the envelope with its first entry. `body` is the encoded envelope with this
        entry.
        """
        self.entries, self.body = [entry], body

    def encode_with(self, *more: Entry) -> bytes:
        """Return the encoded envelope with the entries `more` added at its end."""
        entries = [*self.entries, *more]
        if self._sealed and self._key is not None:
            return seal(encode(entries, origin=self.origin, is_packed=self._packed), self._key)
        return encode(entries, origin=self.origin, key=self._key, is_packed=self._packed)

    def add(self, entry: Entry, capacity: int) -> bool:
        """Add the entry if the envelope then fits into `capacity` bytes. Return True if the entry
        was added.
        """
        return self.add_all([entry], capacity)

    def add_all(self, entries: Sequence[Entry], capacity: int) -> bool:
        """Add all entries if the envelope then fits into `capacity` bytes. Return True if they were
        added.
        """
        body = self.encode_with(*entries)
        if len(body) > capacity:
            return False
        self.entries += entries
        self.body = body
        return True


StageKey = tuple[int, int, int, str]


@dataclass(slots=True)
class PiggybackEntries:
    """Entries that were sent with Packages in one transmission. If the transmission fails, they
    wait again.
    """

    reports: dict[int, Entry] = field(default_factory=dict)
    receipts: dict[int, Entry] = field(default_factory=dict)
    stages: dict[StageKey, PendingStage] = field(default_factory=dict)
    unreadable: list[PendingUnreadableReport] = field(default_factory=list)
    has_introduction: bool = False
    has_name_request: bool = False
    """True if the transmission contained a request for names."""
    named_incident: bool = False


@dataclass(frozen=True, slots=True)
class RepeatedPacket:
    """One packet that is repeated on the air. It contains entries of the station `origin`."""

    origin: int
    entries: Sequence[Entry]
    optional_entries: Sequence[Entry] = ()
    """Optional entries, left out if they do not fit: the stations that are missing the item, or its
    sender's name."""
    sos: bool = False
    hops: int = 0
    """Number of radio transmissions over which the content reached this kit."""
    joins: bool = False
    """True if this content may share a packet with repeated items of any station."""


class Piggyback(Protocol):
    def load_entries(self) -> None:
        """Load from the journal the entries that the peer must receive."""

    def report(self, origin: int, report: Entry) -> None:
        """Report to the peer which fragments of an item have arrived, so that the peer sends the
        rest.
        """

    def ask_names(self) -> None:
        """Ask for names, because an item came from a person without a known name."""

    def is_worth_sending(self) -> bool:
        """Return True if the waiting entries justify a transmission without a Package."""

    def fill(self, draft: Draft, capacity: int) -> PiggybackEntries:
        """Add to `draft` the entries that fit into `capacity` bytes."""

    def find_next_repeat(self, *, is_busy: bool | None) -> RepeatedPacket | None:
        """Return an item that must be repeated before any Package is sent, or None. While a Package
        waits (`is_busy` is True), return only an SOS. If the waiting Package is itself an SOS
        (`is_busy` is None), return None.
        """

    def find_joining(self) -> RepeatedPacket | None:
        """Return another item that may share the packet, or None."""

    def mark_joined(self, repeat: RepeatedPacket) -> None:
        """Record that the item from `find_joining` fits and is sent."""

    def record(self, db: sqlite3.Connection, entries: PiggybackEntries) -> None:
        """Record that the transmission left with these entries. Call this function in the commit
        that records the transmission.
        """

    def mark_settled(
        self, entries: PiggybackEntries, *, is_sent: bool, beside_packages: bool
    ) -> None:
        """Record that the transmission is over. `is_sent` is True if it was sent."""
