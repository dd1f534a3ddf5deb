"""One channel's outbox, which its driver talks to (`channels.contract`).

`load` packs what is due, `intend` writes down that a modem is about to send it, and `settle` how
that ended: it decides what that means for each Package in it, and has all of it recorded in one
commit.
"""

from __future__ import annotations

import logging
import sqlite3
from dataclasses import dataclass, field
from itertools import count
from math import inf

import trio

from fieldagent.agent.channels.contract import ChannelLink, Intent, Transmission
from fieldagent.agent.journal import history, outbound
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.journal.records import EndedLeg, Piece, Spent
from fieldagent.agent.outbound.budget import Budget, until_midnight
from fieldagent.agent.outbound.burst import Burst
from fieldagent.agent.outbound.ending import Endings
from fieldagent.agent.outbound.packing import Packing
from fieldagent.agent.outbound.piggyback import Piggyback, Piggybacked
from fieldagent.agent.outbound.terms import TERMS
from fieldagent.package.delivery import Leg
from fieldagent.package.package import Package, Status
from fieldagent.wire.credit import CREDIT_BYTES
from fieldagent.wire.outcome import Outcome

log = logging.getLogger(__name__)

AGAIN, AGAIN_MAX = 5.0, 60.0
"""Seconds that a Package waits for each time that a driver failed with it, and the longest."""
LOOK_AGAIN = 3600.0
"""Seconds after which the budget is looked at anew, as the wall clock may be set meanwhile."""


@dataclass(slots=True)
class _Settlement:
    """What the end of a transmission means for what was in it."""

    ended: list[EndedLeg] = field(default_factory=list)
    waits: dict[int, float] = field(default_factory=dict)
    """Packages that wait again, and until when."""
    tried: list[int] = field(default_factory=list)
    """Packages for which it counts as a try in vain."""
    event: str = "not sent"
    """What their history says of it."""


class ChannelOutbox:
    """Implements `channels.contract.Outbox`, and on the air `RadioOutbox`."""

    def __init__(
        self,
        journal: Journal,
        packing: Packing,
        budget: Budget,
        piggyback: Piggyback,
        endings: Endings,
        link: ChannelLink,
    ) -> None:
        self.channel = packing.queue.channel
        self.link = link
        self._terms = TERMS[self.channel]
        self._journal = journal
        self._queue = packing.queue
        self.packing = packing
        self._budget = budget
        self._piggyback = piggyback
        self._endings = endings
        self._acks = packing.acks
        self._numbers = count(1)
        self._words: dict[int, Piggybacked] = {}
        self._expired: list[EndedLeg] = []
        known = outbound.intent_of(journal, self.channel)
        self._intent = None if known is None else known[0]

    # What the agent does with it.

    def __len__(self) -> int:
        return len(self._queue)

    async def run(self) -> None:
        """End what outlives its time."""
        while True:
            # Those that could not be recorded the last time come first.
            self._expired = self._expired or await self._queue.next_expired()
            count = len(self._expired)
            log.warning("%s: %d expired before they could be sent", self.channel, count)
            await self._endings.record(self._expired)
            self._expired = []

    def parts(self, package: Package) -> list[Spent]:
        """What each transmission that it takes would cost."""
        sizes = self.packing.sizes(package, self._endings.clock())
        return [self._price(size) for size in sizes]

    def report(self, origin: int, sequence: int, count: int, arrived: frozenset[int]) -> None:
        """Tell the peer which fragments of its `sequence` have come."""
        self._piggyback.report(origin, sequence, count, arrived)
        self._queue.wake()

    def spent(self) -> Spent:
        return self._budget.spent()

    # What the driver does with it.

    async def ready(self, *, urgent: bool = False) -> None:
        while not self._is_ready(urgent):
            changed = self._queue.changed
            with trio.move_on_at(self._look_again()):
                await changed.wait()

    def _look_again(self) -> float:
        """When something may become ready by itself: a retry falls due, or a new day begins."""
        now = trio.current_time()
        midnight = until_midnight(self._endings.clock())
        return min(self._queue.next_change(now), now + min(midnight, LOOK_AGAIN))

    def _is_ready(self, urgent: bool) -> bool:
        sequence = self._queue.foremost(trio.current_time())
        if sequence is None:
            return self._piggyback.is_worth_sending() and not urgent and self.allowance() != 0
        if urgent and not self._queue.is_sos(sequence):
            return False
        return self._fits_budget(sequence)

    def load(self, room: int) -> Transmission | None:
        now = trio.current_time()
        first = self._queue.foremost(now)
        urgent = first is not None and self._queue.is_sos(first)
        allowance = self.allowance(urgent=urgent)
        room = room if allowance is None else min(room, allowance * CREDIT_BYTES)
        packed = self.packing.pack(now, room, self._piggyback)
        if packed is None:
            return None
        number = next(self._numbers)
        self._queue.in_flight[number], self._words[number] = packed.pieces, packed.piggybacked
        if self._acks is not None:
            self._acks.expect(number, packed.pieces)
        answerable = bool(packed.pieces)
        return Transmission(number, packed.body, urgent, packed.tries, answerable, packed.more)

    def unsettled(self) -> Intent | None:
        return self._intent

    async def intend(self, transmission: Transmission, *, modem: str, momsn: int) -> None:
        intent = Intent(transmission, modem, momsn)
        pieces = self._queue.in_flight[transmission.number]
        await self._journal.persist(outbound.intend(self.channel, intent, pieces))
        self._intent = intent

    async def settle(
        self,
        transmission: Transmission,
        outcome: Outcome,
        *,
        reason: str = "",
        retry_after: float = 0.0,
    ) -> None:
        if outcome is Outcome.DOUBTFUL:
            return
        sent = outcome is Outcome.SENT
        number = transmission.number
        pieces = self._queue.in_flight[number]
        words = self._words.get(number, Piggybacked())
        if sent:
            settlement = self._after_success(pieces)
            record = self._left(transmission, pieces, words)
        else:
            settlement = self._after_failure(pieces, outcome, reason, retry_after)
            record = self._tried(settlement, reason)
        await self._apply(settlement, record)
        if sent:
            self.link.last_success = self._endings.clock()
        if self._intent is not None and self._intent.transmission.number == number:
            self._intent = None
        self._over(number, sent=sent)

    async def _apply(self, settlement: _Settlement, record: Operation[None]) -> None:
        """What is decided is in one commit, and the queue follows once that is on disk."""
        waits = settlement.waits
        decided = [*settlement.ended, *self._queue.ends(waits)]
        await self._endings.record(decided, record)
        self.packing.settled()
        for each in settlement.ended:
            self._queue.finish(each.sequence)
        back = [self._queue.put_back(sequence, due) for sequence, due in waits.items()]
        late = [each for each in back if each is not None and each not in decided]
        if late:
            # Withdrawn, or replaced, during the commit.
            await self._endings.record(late)

    def _over(self, number: int, *, sent: bool) -> None:
        words = self._words.pop(number, Piggybacked())
        beside_packages = bool(self._queue.in_flight[number])
        self._piggyback.settled(words, sent=sent, beside_packages=beside_packages)
        if self._acks is not None:
            self._acks.drop(number)
        self._queue.settled(number)

    async def give_back(self) -> None:
        """What a driver that failed had in flight waits again; an intent stays, to be resolved.

        Each travels alone from here on, and ever later: one that makes drivers fail must hold up no
        other.
        """
        begun = None if self._intent is None else self._intent.transmission.number
        lost = [number for number in self._queue.in_flight if number != begun]
        kept = [] if begun is None else self._queue.in_flight[begun]
        self._queue.bursts.clear()
        back = self._queue.taken() - {piece.sequence for piece in kept}
        self._queue.alone |= back
        now = trio.current_time()
        waits = {
            sequence: now + min(AGAIN_MAX, AGAIN * self.packing.tries(sequence))
            for sequence in back
        }
        settlement = _Settlement(waits=waits, tried=sorted(back))
        await self._apply(settlement, self._tried(settlement, "the driver failed", begun is None))
        for number in lost:
            self._over(number, sent=False)
        # What was taken for a transmission that never came to be.
        self._queue.landed(back)

    def _down(self, pieces: list[Piece], *, sent: bool) -> dict[Piece, Burst]:
        """Those with which nothing of their Package is under way any more."""
        bursts = {piece: self._queue.down(piece, sent=sent) for piece in pieces}
        return {piece: burst for piece, burst in bursts.items() if burst is not None}

    def _after_success(self, pieces: list[Piece]) -> _Settlement:
        settlement = _Settlement()
        over = self._down(pieces, sent=True)
        for piece in pieces:
            if self._completes(piece):
                leg = Leg(Status.DELIVERED)
                settlement.ended.append(EndedLeg(piece.sequence, self.channel, leg))
            elif piece in over:
                settlement.waits[piece.sequence] = -inf
        return settlement

    def _completes(self, piece: Piece) -> bool:
        """Whether its Package is at the far side once this piece is."""
        if piece.sequence not in self._queue:
            # Another fragment has brought the news.
            return False
        if piece.count == 1:
            return True
        if self._terms.shared:
            return outbound.is_held_whole(self._journal, self.channel, piece.sequence)
        held = outbound.fragments_held(self._journal, self.channel, piece.sequence, piece.count)
        return len(held.get(outbound.ONLY_PEER, set()) | {piece.position}) == piece.count

    def _after_failure(
        self, pieces: list[Piece], outcome: Outcome, reason: str, retry_after: float
    ) -> _Settlement:
        over = self._down(pieces, sent=False)
        if outcome is Outcome.REFUSED and len(pieces) == 1:
            (sequence,) = (piece.sequence for piece in pieces)
            leg = Leg(Status.ERROR, reason or "refused")
            ended = EndedLeg(sequence, self.channel, leg)
            return _Settlement([ended], tried=[sequence], event="refused")
        if outcome is Outcome.REFUSED:
            # One of several cannot be sent: each shows on its own which.
            self._queue.alone |= {piece.sequence for piece in pieces}
        due = trio.current_time() + retry_after if retry_after > 0 else -inf
        # Of a burst that was heard in part the rest goes at once.
        waits = {piece.sequence: -inf if burst.heard else due for piece, burst in over.items()}
        tried = [piece.sequence for piece, burst in over.items() if not burst.heard]
        return _Settlement(waits=waits, tried=tried)

    def _left(
        self, transmission: Transmission, pieces: list[Piece], words: Piggybacked
    ) -> Operation[None]:
        """Writes down that it left, and what it cost."""
        spent = self._price(len(transmission.body))
        left = outbound.sent(self.channel, pieces, shared=self._terms.shared)
        book = self._budget.book(spent)
        cost, now = _in_words(spent, len(pieces)), self._endings.clock()

        def store(db: sqlite3.Connection) -> None:
            left(db)
            book(db)
            self._piggyback.record(db, words)
            for piece in pieces:
                detail = _fragment_in_words(piece) + cost
                history.note(db, [piece.sequence], self.channel, "sent", detail, now)

        return store

    def _tried(
        self, settlement: _Settlement, reason: str, ends_intent: bool = True
    ) -> Operation[None]:
        """Counts the tries in vain."""
        sequences, now = settlement.tried, self._endings.clock()
        tried = outbound.tried(self.channel, sequences, ends_intent=ends_intent)

        def store(db: sqlite3.Connection) -> None:
            tried(db)
            history.note(db, sequences, self.channel, settlement.event, reason, now)

        return store

    def _price(self, size: int) -> Spent:
        return Spent(size, self._terms.credits(size))

    async def acknowledged(self, transmission: Transmission) -> bool:
        return self._acks is None or await self._acks.acknowledged(transmission.number)

    def allowance(self, *, urgent: bool = False, mailbox: bool = False) -> int | None:
        return self._budget.left(urgent=urgent, mailbox=mailbox)

    def held_back(self) -> str:
        sequence = self._queue.foremost(trio.current_time())
        if sequence is None or self._fits_budget(sequence):
            return ""
        return self._budget.in_words()

    def _fits_budget(self, sequence: int) -> bool:
        allowance = self.allowance(urgent=self._queue.is_sos(sequence))
        return allowance is None or self.packing.credits(sequence) <= allowance

    async def spend(self, credit: int) -> None:
        await self._journal.persist(self._budget.book(Spent(0, credit)))


def _fragment_in_words(piece: Piece) -> str:
    return "" if piece.count == 1 else f"fragment {piece.position + 1} of {piece.count}: "


def _in_words(spent: Spent, together: int) -> str:
    unit = "credit" if spent.credits == 1 else "credits"
    cost = f", {spent.credits} {unit}" if spent.credits else ""
    shared = f", shared by {together}" if together > 1 else ""
    return f"{spent.bytes} bytes{cost}{shared}"
