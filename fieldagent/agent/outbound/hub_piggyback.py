"""Entries for the hub that are sent with Packages: receipts for the hub's items, reports of missing
fragments, the number of the open incident, and a request for names.
"""

from __future__ import annotations

import sqlite3
from math import inf

from fieldagent.agent.journal import inbound, incident, outbound
from fieldagent.agent.journal.inbound import PendingStage, PendingUnreadableReport
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.piggyback import Draft, PiggybackEntries, RepeatedPacket, StageKey
from fieldagent.package.package import IncidentState, IncidentUpdate
from fieldagent.wire.credit import Tariff
from fieldagent.wire.envelope import Entry, JournalNumber, Receipt

RECEIPTS_BYTES = 100
"""Maximum size in bytes of the receipts (about ten) that are sent with Packages if bytes are
billed. The receipts are needed for a modem that keeps no copy of received messages."""
NAME_INCIDENT_INTERVAL_S = 300.0
"""Seconds after which an open incident is named again over a free link without other traffic. So a
hub with a restored database raises the alarm again."""


class HubPiggyback:
    """Implements `Piggyback` for a channel to the hub."""

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
        """Elapsed time when the open incident was last named."""
        self.load_entries()

    @property
    def _tariff(self) -> Tariff:
        return self._queue.limits.tariff

    def load_entries(self) -> None:
        """Load the receipts, stages and reports that the hub has not received. These entries ride
        in the next transmission; receipts for an SOS are sent at once.
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
        """Return True if it is time to name the open incident in a separate transmission. The
        channel must be free of cost.
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
        """Name the open incident in each transmission that takes place anyway, if the name costs
        nothing more. A transmission with an item of the incident already names it.
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
