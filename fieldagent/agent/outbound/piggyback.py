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
from fieldagent.agent.outbound.draft import Draft
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import Entry

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
