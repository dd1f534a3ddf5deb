"""Entries that are sent to the peer with Packages: confirmations of the peer's items, and our
identity. This module contains their interface to packing, and the entries for the hub.

For the hub, the entries are receipts for the hub's items, reports of missing fragments, the number
of the open incident, and a request for names. On the air, they are acknowledgements, our name, and
the request to relay (`radio_piggyback`). Each implementation decides when its entries are worth a
transmission of their own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import field
from math import inf
from typing import Protocol

from fieldagent.agent.journal import inbound, incident, outbound
from fieldagent.agent.journal.inbound import PendingStage, PendingUnreadableReport
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.package.package import IncidentState, IncidentUpdate
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.credit import Tariff
from fieldagent.wire.envelope import Entry, JournalNumber, Receipt, encode
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
    """Entries for the peer in one transmission, with or without Packages. If the transmission
    fails, they wait again.
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
        """Return another repeated item that may share the packet, or None."""

    def mark_joined(self, repeat: RepeatedPacket) -> None:
        """Record that the item from `find_joining` fits and is sent."""

    def record(self, db: sqlite3.Connection, entries: PiggybackEntries) -> None:
        """Record that the transmission left with these entries. Call this function in the commit
        that records the transmission.
        """

    def mark_settled(
        self, entries: PiggybackEntries, *, is_sent: bool, beside_packages: bool
    ) -> None:
        """Record that the transmission is over. `is_sent` is True if it was sent. Otherwise, the
        entries wait again. `beside_packages` is True if it also contained Packages.
        """


RECEIPTS_BYTES = 100
"""Maximum size in bytes of the receipts (about ten) that are sent with Packages if bytes are
billed. The receipts are needed for a modem that keeps no copy of received messages."""
NAME_INCIDENT_INTERVAL_S = 300.0
"""Seconds after which the number of an open incident is sent again over a free link without other
traffic. So a hub with a restored database raises the alarm again."""


class HubPiggyback:
    """Implements `Piggyback` for a channel to the hub. If `is_immediate`, any receipt justifies a
    transmission without a Package, otherwise only the receipt for an SOS.
    """

    def __init__(
        self, journal: Journal, queue: ChannelQueue, *, is_immediate: bool = False
    ) -> None:
        self._journal = journal
        self._queue = queue
        self._channel = queue.channel
        self._at_once = is_immediate
        self._reports: dict[int, Entry] = {}
        self._owed_receipts: dict[int, Entry] = {}
        self._sent_numbers: set[int] = set()
        self._stages: dict[StageKey, PendingStage] = {}
        self._stages_under_way: set[StageKey] = set()
        self._unreadable: list[PendingUnreadableReport] = []
        self._unreadable_under_way: list[PendingUnreadableReport] = []
        # A new journal contains no names, but the hub may already have sent all names to the
        # previous journal. So ask for them.
        self._asks_for_names = not queue.limits.authentic and not inbound.has_identities(journal)
        self._incident_named = -inf
        """Elapsed time when the open incident's number was last sent."""
        self.load_entries()

    @property
    def _tariff(self) -> Tariff:
        return self._queue.limits.tariff

    def load_entries(self) -> None:
        """Load the receipts, stages and reports that the hub has not received. `fill` adds these
        entries to a transmission.
        """
        for sequence, at, sos, digest in inbound.list_pending_receipts(
            self._journal, self._channel
        ):
            if sequence not in self._sent_numbers:
                self._owed_receipts[sequence] = Entry(sequence, Receipt(digest=digest), at, sos)
        self._stages = {
            each.key: each
            for each in inbound.list_pending_stages(self._journal)
            if each.key not in self._stages_under_way
        }
        self._unreadable = [
            each
            for each in inbound.list_pending_unreadable_reports(self._journal, self._channel)
            if each not in self._unreadable_under_way
        ]

    def report(self, origin: int, report: Entry) -> None:
        self._reports[report.sequence] = report

    def ask_names(self) -> None:
        # Over an IP link the hub receives the journal's number first, and then sends the names
        # unasked.
        self._asks_for_names = not self._queue.limits.authentic

    def is_worth_sending(self) -> bool:
        must_send_at_once = self._at_once or any(
            entry.sos for entry in self._owed_receipts.values()
        )
        owes = bool(self._owed_receipts) and must_send_at_once
        free = bool(self._stages) and not self._tariff.compute_units(1)
        has_reports = bool(self._reports or self._unreadable)
        return has_reports or owes or free or self._must_name_incident()

    def _must_name_incident(self) -> bool:
        """Return True if the number of the open incident must be sent now, even in a separate
        transmission. Always return False on a channel that costs credits or bytes.
        """
        if self._tariff.compute_units(1) or incident.find_open(self._journal) is None:
            return False
        return self._journal.clock.now() - self._incident_named >= NAME_INCIDENT_INTERVAL_S

    def fill(self, draft: Draft, capacity: int) -> PiggybackEntries:
        piggybacked = PiggybackEntries()
        for sequence, report in list(self._reports.items()):
            if draft.add(report, capacity):
                piggybacked.reports[sequence] = self._reports.pop(sequence)
        for each in list(self._unreadable):
            if draft.add(Entry(0, each.report, each.at), capacity):
                piggybacked.unreadable.append(each)
                self._unreadable.remove(each)
        self._unreadable_under_way += piggybacked.unreadable
        self._fill_receipts(draft, capacity, piggybacked)
        if self._asks_for_names and draft.entries:
            # Use only bytes that are already paid for.
            free = min(capacity, self._tariff.compute_paid_size(len(draft)))
            number = outbound.read_journal_number(self._journal)
            piggybacked.has_name_request = draft.add(
                Entry(number, JournalNumber(wants_names=True)), free
            )
        self._fill_incident(draft, capacity, piggybacked)
        return piggybacked

    def _fill_incident(self, draft: Draft, capacity: int, entries: PiggybackEntries) -> None:
        """Add the number of the open incident to a transmission that takes place anyway, if this
        costs nothing more. A transmission with an SOS item already contains the number.
        """
        open_incident = incident.find_open(self._journal)
        if open_incident is None or any(entry.sos for entry in draft.entries):
            return
        free = (
            min(capacity, self._tariff.compute_paid_size(len(draft)))
            if self._tariff.compute_units(1)
            else capacity
        )
        if draft.entries or self._must_name_incident():
            clock = self._journal.clock
            update = IncidentUpdate(open_incident.number, IncidentState.OPEN)
            update_entry = Entry(0, update, int(clock.date(clock.now())))
            entries.named_incident = draft.add(update_entry, free)
            if entries.named_incident:
                self._incident_named = clock.now()

    def _fill_receipts(self, draft: Draft, capacity: int, entries: PiggybackEntries) -> None:
        """Add receipts that cost nothing more or, if bytes are billed, at most RECEIPTS_BYTES of
        receipts. If the draft is empty, add receipts only if they are worth a transmission of their
        own.
        """
        if draft.entries and self._tariff.step > 1:
            capacity = min(capacity, self._tariff.compute_paid_size(len(draft)))
        elif draft.entries:
            capacity = min(capacity, max(len(draft) + RECEIPTS_BYTES, self._tariff.minimum))
        elif not self.is_worth_sending():
            return
        for sequence, receipt in sorted(
            self._owed_receipts.items(), key=lambda owed: not owed[1].sos
        ):
            # Receipts for an SOS go first, but a receipt is sent as an entry that is not an SOS.
            if draft.add(Entry(sequence, receipt.content, receipt.time), capacity):
                entries.receipts[sequence] = self._owed_receipts.pop(sequence)
            else:
                # Stop at the first receipt that does not fit. The hub considers an item lost if a
                # receipt for a later item arrives first.
                break
        self._sent_numbers |= entries.receipts.keys()
        for key, owed in list(self._stages.items()):
            said = Receipt(max(0, -owed.origin), owed.digest, owed.stage, owed.text)
            if draft.add(Entry(owed.sequence, said, owed.at), capacity):
                entries.stages[key] = self._stages.pop(key)
        self._stages_under_way |= entries.stages.keys()

    def find_next_repeat(self, *, is_busy: bool | None) -> RepeatedPacket | None:
        return None

    def find_joining(self) -> RepeatedPacket | None:
        return None

    def mark_joined(self, repeat: RepeatedPacket) -> None:
        pass

    def record(self, db: sqlite3.Connection, entries: PiggybackEntries) -> None:
        inbound.mark_reported(db, self._channel, entries.receipts)
        inbound.mark_stages_reported(db, entries.stages)
        inbound.mark_unreadable_reported(db, self._channel, entries.unreadable)

    def mark_settled(
        self, entries: PiggybackEntries, *, is_sent: bool, beside_packages: bool
    ) -> None:
        self._sent_numbers -= entries.receipts.keys()
        for each in entries.unreadable:
            self._unreadable_under_way.remove(each)
        self._stages_under_way -= entries.stages.keys()
        if entries.has_name_request and is_sent:
            self._asks_for_names = False
        if entries.named_incident and not is_sent:
            self._incident_named = -inf
        if not is_sent:
            self._owed_receipts |= entries.receipts
            self._stages |= entries.stages
            self._unreadable = entries.unreadable + self._unreadable
        if not is_sent and beside_packages:
            # A transmission without Packages is not retried; `repeats` asks again when due.
            self._reports = entries.reports | self._reports
