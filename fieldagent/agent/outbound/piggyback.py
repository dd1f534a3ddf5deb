"""Words to the peers that ride along with Packages: what of theirs has come, and who we are.

To the hub those are receipts and reports of missing fragments; on the air they are
acknowledgements, our name, and the request to relay. Each kind knows when it is worth a
transmission of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from math import inf
from random import Random
from typing import Protocol

from fieldagent.agent.journal import inbound, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.draft import Draft
from fieldagent.agent.outbound.holdings import Holdings, numbers_of
from fieldagent.agent.outbound.terms import TERMS
from fieldagent.package.package import Channel, Item
from fieldagent.package.payload import Identity
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.credit import paid_with
from fieldagent.wire.envelope import (
    Ack,
    Entry,
    Fragment,
    Introduction,
    JournalNumber,
    Receipt,
    RelayRequest,
    Report,
)

ACKS_MAX = 256
"""Acknowledgements that wait; for one that is dropped the item comes again."""
INTRODUCE_EVERY = 3600.0
"""Seconds."""
PATIENCE = 70.0
"""Seconds that an acknowledgement waits to ride along, where another station has said the same: a
quarter more or less, as others wait for the same."""


@dataclass(slots=True)
class Piggybacked:
    """What rode in one transmission, by the peer's number, to be given back if it failed."""

    reports: dict[int, Entry] = field(default_factory=dict)
    receipts: dict[int, Entry] = field(default_factory=dict)
    introduced: bool = False
    asked: bool = False
    """It was asked who is who."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """One packet that goes on the air once more: entries of the station `origin`."""

    origin: int
    entries: Sequence[Entry]
    lacking: Sequence[Entry] = ()
    """Which name those who lack it."""
    sos: bool = False


class Piggyback(Protocol):
    def look(self) -> None:
        """Something in the journal is owed to the peer."""

    def report(self, origin: int, report: Entry) -> None:
        """Tell the peer which fragments of an item have come, so that it sends the rest."""

    def ask_names(self) -> None:
        """Something came from somebody who was not introduced."""

    def is_worth_sending(self) -> bool:
        """Whether there is something to say that does not wait for a Package to ride with."""

    def fill(self, draft: Draft, room: int) -> Piggybacked:
        """Add to `draft` what still fits into `room` bytes."""

    def next_repeat(self, *, busy: bool | None) -> Repeat | None:
        """What goes in a packet of its own before anything else. While a Package waits (`busy`) an
        SOS does alone, and nothing while that is one itself (None)."""

    def record(self, db: sqlite3.Connection, words: Piggybacked) -> None:
        """The transmission left: write it down in the same commit."""

    def settled(self, words: Piggybacked, *, sent: bool, beside_packages: bool) -> None:
        """The transmission is over."""


class HubPiggyback:
    """Receipts for what the hub sent, and reports of fragments that are missing of it."""

    def __init__(self, journal: Journal, channel: Channel, *, at_once: bool = False) -> None:
        self._journal = journal
        self._channel = channel
        self._at_once = at_once
        self._reports: dict[int, Entry] = {}
        self._owed: dict[int, Entry] = {}
        self._under_way: set[int] = set()
        # A new journal knows nobody, while the hub may have told all names to the one before.
        self._asks = not TERMS[channel].authentic and not inbound.knows_anybody(journal)
        self.look()

    def look(self) -> None:
        """Receipts are owed: they go with the next transmission, and an SOS's at once."""
        for sequence, at, sos, digest in inbound.owed(self._journal, self._channel):
            if sequence not in self._under_way:
                self._owed[sequence] = Entry(sequence, Receipt(digest=digest), at, sos)

    def report(self, origin: int, report: Entry) -> None:
        self._reports[report.sequence] = report

    def ask_names(self) -> None:
        # Over a link the hub is told the journal before anything else, and tells names by it.
        self._asks = not TERMS[self._channel].authentic

    def is_worth_sending(self) -> bool:
        at_once = self._at_once or any(entry.sos for entry in self._owed.values())
        return bool(self._reports) or (bool(self._owed) and at_once)

    def fill(self, draft: Draft, room: int) -> Piggybacked:
        words = Piggybacked()
        for sequence, report in list(self._reports.items()):
            if draft.add(report, room):
                words.reports[sequence] = self._reports.pop(sequence)
        self._fill_receipts(draft, room, words)
        if self._asks and draft.entries:
            # No credit more than is paid already.
            free = min(room, paid_with(len(draft)))
            number = outbound.journal_number(self._journal)
            words.asked = draft.add(Entry(number, JournalNumber(asks=True)), free)
        return words

    def _fill_receipts(self, draft: Draft, room: int, words: Piggybacked) -> None:
        """Those that cost nothing; where nothing else goes, those that are worth it."""
        if draft.entries:
            room = min(room, paid_with(len(draft)))
        elif not self.is_worth_sending():
            return
        for sequence, receipt in sorted(self._owed.items(), key=lambda owed: not owed[1].sos):
            # The SOS was urgent on its way here; the receipt of it is an ordinary entry.
            if draft.add(Entry(sequence, receipt.content, receipt.time), room):
                words.receipts[sequence] = self._owed.pop(sequence)
        self._under_way |= words.receipts.keys()

    def next_repeat(self, *, busy: bool | None) -> Repeat | None:
        return None

    def record(self, db: sqlite3.Connection, words: Piggybacked) -> None:
        inbound.told(db, self._channel, words.receipts)

    def settled(self, words: Piggybacked, *, sent: bool, beside_packages: bool) -> None:
        self._under_way -= words.receipts.keys()
        if words.asked and sent:
            self._asks = False
        if not sent:
            self._owed |= words.receipts
        if not sent and beside_packages:
            # Alone, a report has no retry of its own: it is asked for again when it is due.
            self._reports = words.reports | self._reports


@dataclass(slots=True)
class _DueAck:
    ack: Ack
    patient: bool
    """It need not go at once."""
    twice: bool
    """It goes in two packets, one after the other."""
    alone: bool
    """It is said for itself too, where others are said with it."""
    until: float = -inf
    """It waits so long for a packet to ride in."""


class RadioPiggyback:
    """Acknowledgements of what was heard, our name, and the request to relay what goes out.

    An acknowledgement that is lost is given again, as the item comes again. `asks_for_relay` tells
    whether we reach the hub over neighbours alone.
    """

    def __init__(
        self,
        station: int,
        identity: Identity,
        *,
        asks_for_relay: Callable[[], bool],
        clock: Callable[[], float],
        random: Callable[[], float] | None = None,
    ) -> None:
        self.holdings = Holdings()
        self._random = random or Random().random
        self._introduction = Entry(station, Introduction(identity))
        self.asks_for_relay = asks_for_relay
        self._clock = clock
        self._introduced = -INTRODUCE_EVERY
        self._presents_itself = False
        self._acks: dict[tuple[int, int], _DueAck] = {}
        """By the station whose item it is, and the number it gave the item."""
        self._repeats: list[Repeat] = []
        self.said: set[int] = set()
        """Numbers of our items that went on the air."""

    def repeat(self, repeats: Iterable[Repeat]) -> None:
        """They go once more, an SOS first; what waits from before is as good."""
        kept = {(each.origin, each.entries[0]) for each in self._repeats}
        self._repeats += [each for each in repeats if (each.origin, each.entries[0]) not in kept]
        self._repeats.sort(key=lambda each: not each.sos)

    def next_repeat(self, *, busy: bool | None) -> Repeat | None:
        if not self._repeats or busy is None or (busy and not self._repeats[0].sos):
            return None
        return self._repeats.pop(0)

    def introduce(self, *, at_once: bool = False) -> None:
        """Somebody is there who may not know our name: it goes along with what goes next, or by
        itself."""
        self._introduced = -INTRODUCE_EVERY
        self._presents_itself |= at_once

    def acknowledge(
        self,
        sequence: int,
        ack: Ack,
        *,
        patient: bool = False,
        twice: bool = False,
        alone: bool = False,
    ) -> None:
        """A `patient` one waits for company once another station has said the same; `twice`: it was
        said before, and lost. `alone`: whoever has forgotten one of several cannot tell that the
        others are its own."""
        key = ack.station, sequence
        if (before := self._acks.get(key)) is not None:
            twice, alone = twice or before.twice, alone or before.alone
        self._acks[key] = _DueAck(ack, patient, twice, alone)
        while len(self._acks) > ACKS_MAX:
            del self._acks[next(iter(self._acks))]

    def patience(self) -> float:
        """Seconds until an acknowledgement has waited long enough."""
        waiting = (due.until for due in self._acks.values() if due.until > -inf)
        return min(waiting, default=inf) - self._clock()

    def lose_patience(self) -> bool:
        """Let those that have waited long enough go at once; whether there are any."""
        over = [due for due in self._acks.values() if -inf < due.until <= self._clock()]
        for due in over:
            due.until = -inf
        return bool(over)

    def overhear(self, sequence: int, ack: Ack) -> None:
        """Another has said it: as much of an item, or more, is at a station already.

        Who has it whole says so all the same: its sender wants to know who does.
        """
        key = ack.station, sequence
        due = self._acks.get(key)
        if due is None:
            return
        ours = due.ack
        if ours.whole and ack.whole and due.patient:
            due.until = self._clock() + PATIENCE * (0.75 + 0.5 * self._random())
        if ours.whole or ours.count != ack.count:
            return
        other = ours.arrived == ack.arrived and ours.digest != ack.digest != b""
        if ours.arrived <= ack.arrived and not other:
            del self._acks[key]

    def look(self) -> None:
        pass

    def report(self, origin: int, report: Entry) -> None:
        said = report.content
        assert isinstance(said, Report)
        ack = Ack(-origin, said.count, said.arrived, digest=said.digest)
        self.acknowledge(report.sequence, ack)

    def ask_names(self) -> None:
        pass

    def is_worth_sending(self) -> bool:
        return self._has_acks() or bool(self._repeats) or self._presents_itself

    def _has_acks(self) -> bool:
        """That go at once."""
        return any(due.until == -inf for due in self._acks.values())

    def fill(self, draft: Draft, room: int) -> Piggybacked:
        words = Piggybacked()
        if not draft.entries and not (self._has_acks() or self._presents_itself):
            return words
        self.said |= {
            entry.sequence for entry in draft.entries if isinstance(entry.content, Item | Fragment)
        }
        if draft.entries and self.asks_for_relay():
            draft.add(Entry(0, RelayRequest()), room)
        if abs(self._clock() - self._introduced) >= INTRODUCE_EVERY:
            beside = bool(draft.entries)
            words.introduced = draft.add(self._introduction, room)
            # Where it never fits beside a Package it has a packet of its own.
            self._presents_itself = beside and not words.introduced
            if words.introduced:
                # Of nothing: that we read what acknowledges several.
                draft.add(Entry(0, Ack(self._introduction.sequence, 0, frozenset())), room)
        self._fill_acks(draft, room)
        return words

    def _fill_acks(self, draft: Draft, room: int) -> None:
        together: set[Entry] = set()
        for key, due in list(self._acks.items()):
            several = self.holdings.several(key[0]) if due.patient else None
            told = [] if several is None else [(key[0], each) for each in numbers_of(several)]
            if key not in self._acks:
                continue
            fresh = key in told and several not in together
            if several is not None and fresh and draft.add(several, room):
                together.add(several)
                self._note_said_together(told)
            if (due.alone or key not in told) and draft.add(Entry(key[1], due.ack), room):
                if due.twice:
                    due.twice = False
                else:
                    del self._acks[key]

    def _note_said_together(self, told: Iterable[tuple[int, int]]) -> None:
        for key in told:
            due = self._acks.get(key)
            if due is not None and due.patient and not due.alone:
                del self._acks[key]

    def record(self, db: sqlite3.Connection, words: Piggybacked) -> None:
        pass

    def settled(self, words: Piggybacked, *, sent: bool, beside_packages: bool) -> None:
        if words.introduced and sent:
            self._introduced = self._clock()
