"""One channel's side of the queue: it packs what is due into transmissions and books their end.

This is what a channel driver talks to (the contract is in `channels`). It knows the queue, the
journal and the on-air format, and no modem.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf
from typing import NamedTuple

import trio

from fieldagent.channels import Intent, Link, Outcome, Transmission
from fieldagent.delivery import Leg
from fieldagent.inbox import Inbox
from fieldagent.journal import inbound, outbound, story
from fieldagent.journal.commit import Journal, Operation
from fieldagent.journal.outbound import Accepted, Ended, Piece, Spent
from fieldagent.package import SOS_PRIORITY, Channel, Package, Status
from fieldagent.queue import Queue
from fieldagent.wire.credit import CREDIT_BYTES, credits_for
from fieldagent.wire.envelope import TAG_BYTES, Content, Entry, Receipt, Report, encode
from fieldagent.wire.fragments import split
from fieldagent.wire.link import BODY_BYTES
from fieldagent.wire.sbd import MO_BYTES

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a channel takes messages."""

    size: int
    """Most bytes of one."""
    fill: int
    """Bytes up to which a message is filled with what waits: an SOS in it goes no slower."""
    credits: Callable[[int], int]
    """What that many bytes cost."""
    authentic: bool = False
    """The link itself proves who the peer is: no message bears a tag."""
    confirms: bool = False
    """The link itself tells the peer what is stored: no receipts are owed."""


TERMS = {
    Channel.SATELLITE: Terms(MO_BYTES, MO_BYTES, credits_for),
    Channel.CELLULAR: Terms(BODY_BYTES, 4_096, lambda size: 0, authentic=True, confirms=True),
}


class Cost(NamedTuple):
    """What a Package takes on one channel."""

    parts: int
    """Messages that carry nothing else."""
    bytes: int
    credits: int
    left: int | None
    """Credits that may still be spent today; None without a budget."""


RIDERS_MAX = 32
"""How many further Packages are looked at to fill up one transmission."""


class ChannelOutbox:
    """Implements `channels.Outbox`. `clock` is Unix time; the queue runs on trio's own."""

    def __init__(
        self,
        channel: Channel,
        journal: Journal,
        inbox: Inbox,
        *,
        clock: Callable[[], float],
        end: Callable[[list[Ended]], Awaitable[None]],
        key: bytes | None = None,
        budget: int | None = None,
        reserve: int = 0,
        receipts_at_once: bool = False,
    ) -> None:
        self.channel = channel
        self._receipts_at_once = receipts_at_once
        self.link = Link()
        self._terms = TERMS[channel]
        self._journal = journal
        self._inbox = inbox
        self._clock = clock
        self._end = end
        self._key = key
        self._budget = budget
        self._reserve = reserve
        self._queue = Queue()
        self._changed = trio.Event()
        """For the driver: set when something was added or settled, and then replaced."""
        self._expiry = inf
        """When `run` looks for expired Packages next, on trio's clock."""
        self._sooner = trio.Event()
        self._loads: dict[int, list[Piece]] = {}
        self._next_number = 1
        self._intent: Intent | None = None
        self._settled: dict[int, tuple[trio.Event, str]] = {}
        """For whoever waits until a Package in flight can be withdrawn, and why it is to be."""
        self._reports: dict[int, Entry] = {}
        """By the peer's sequence: which fragments have come, to be told with the next chance."""
        self._reported: dict[int, dict[int, Entry]] = {}
        self._owed: dict[int, Entry] = {}
        """By the peer's sequence: receipts for what it sent, to ride in what is sent next."""
        self._paid: dict[int, dict[int, Entry]] = {}
        self._alone: set[int] = set()
        """Packages that travel alone, since a transmission that held them was refused."""
        known = outbound.intent_of(journal, channel)
        if known is not None:
            self._intent, self._loads[0] = known
        self.tell()

    @property
    def owes(self) -> str | None:
        return None if self._terms.confirms else self.channel

    def tell(self) -> None:
        """Receipts are owed: they go with the next transmission, and an SOS's at once."""
        paid = {sequence for each in self._paid.values() for sequence in each}
        for sequence, at, sos in inbound.owed(self._journal, self.channel):
            if sequence not in paid:
                self._owed[sequence] = Entry(sequence, Receipt(), at, sos)
        self._wake()

    # What the agent does with it.

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._queue

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, accepted: Accepted, life: float | None, delay: float = 0.0) -> list[int]:
        """Queue it for `life` seconds (None: for ever); the sequences that it replaces come back.

        Those are forgotten here; recording their end is the caller's. It may leave after `delay`
        seconds.
        """
        package = accepted.package
        now = trio.current_time()
        expires = inf if life is None else now + life
        replaced = self._queue.add(
            accepted.sequence,
            priority=package.priority,
            collapse_key=package.collapse_key,
            sos=package.sos,
            expires=expires,
            due=now + delay if delay > 0 else -inf,
        )
        if expires < self._expiry:
            self._sooner.set()
        if any(piece.sequence == accepted.sequence for piece in self._loads.get(0, ())):
            self._queue.hold(accepted.sequence)
        self._wake()
        return replaced

    def waiting(self) -> list[int]:
        return self._queue.keys()

    def hasten(self, sequence: int) -> None:
        """It need not wait for a cheaper channel, or for its next try, any longer."""
        self._queue.hasten(sequence)
        self._wake()

    def withdraw(self, sequence: int, why: str) -> trio.Event | None:
        """Take it out. While it is in flight, the event tells when that is over."""
        if not self._queue.is_taken(sequence):
            self._queue.remove(sequence)
            self._wake()
            return None
        return self._settled.setdefault(sequence, (trio.Event(), why))[0]

    async def repeat_whole(self, sequence: int) -> None:
        """Send all of a Package again that had left: nobody has confirmed it."""
        known = outbound.by_sequence(self._journal, sequence)
        if known is None or sequence in self._queue:
            return
        await self._journal.commit(outbound.send_all_again(self.channel, sequence))
        self.add(known, None)

    async def repeat(self, sequence: int, positions: frozenset[int]) -> None:
        """The peer lacks these fragments of a Package: they go out again."""
        known = outbound.by_sequence(self._journal, sequence)
        if known is None or sequence in self._queue:
            return
        await self._journal.commit(outbound.send_again(self.channel, sequence, positions))
        self.add(known, None)

    def report(self, sequence: int, count: int, arrived: frozenset[int]) -> None:
        """Ask the peer for the fragments that are missing of its `sequence`."""
        self._reports[sequence] = Entry(sequence, Report(count, arrived))
        self._wake()

    async def run(self) -> None:
        """End what outlives its time."""
        while True:
            self._sooner = trio.Event()
            now = trio.current_time()
            expired = self._queue.expire(now)
            if expired:
                log.warning("%s: %d expired before they could be sent", self.channel, len(expired))
                leg = Leg(Status.ERROR, "expired")
                await self._end([Ended(key, self.channel, leg) for key in expired])
            self._expiry = self._queue.next_change(now)
            with trio.move_on_at(self._expiry):
                await self._sooner.wait()

    def cost(self, package: Package) -> Cost:
        """What it would take, alone; beside others it may take less."""
        entry = _entry_of(outbound.next_sequence(self._journal), package, self._clock())
        whole = encode([entry])
        room = self._terms.size - self._tag_bytes()
        parts: list[Content] = [entry.content]
        if len(whole) > room:
            parts = [*split(whole, room)]
        sizes = [len(encode([replace(entry, content=part)], key=self._key)) for part in parts]
        return Cost(len(sizes), sum(sizes), sum(map(self._terms.credits, sizes)), self.allowance())

    def spent(self) -> Spent:
        return outbound.spent_on(self._journal, self.channel, self._day())

    # What the driver does with it: `channels.Outbox`.

    async def ready(self, *, urgent: bool = False) -> None:
        while not self._is_ready(urgent):
            changed = self._changed
            with trio.move_on_at(self._look_again()):
                await changed.wait()

    def _look_again(self) -> float:
        """When something may become ready by itself: a retry falls due, or a new day begins."""
        now = trio.current_time()
        midnight = 86_400 - self._clock() % 86_400
        # No longer than an hour, as the wall clock may be set meanwhile.
        return min(self._queue.next_change(now), now + min(midnight, 3600.0))

    def _is_ready(self, urgent: bool) -> bool:
        key = self._queue.foremost(trio.current_time())
        if key is None:
            return self._has_to_tell() and not urgent and self.allowance() != 0
        sos = self._queue.priority(key) >= SOS_PRIORITY
        if urgent and not sos:
            return False
        allowance = self.allowance(urgent=sos)
        return allowance is None or self._cost(key) <= allowance

    def _has_to_tell(self) -> bool:
        """Whether something other than Packages is worth a transmission of its own."""
        at_once = self._receipts_at_once or any(entry.sos for entry in self._owed.values())
        return bool(self._reports) or (bool(self._owed) and at_once)

    def _cost(self, sequence: int) -> int:
        _, entry = self._entry(sequence, whole_only=False)
        return self._terms.credits(len(encode([entry], key=self._key)))

    def load(self, room: int) -> Transmission | None:
        now = trio.current_time()
        first = self._queue.foremost(now)
        urgent = first is not None and self._queue.priority(first) >= SOS_PRIORITY
        allowance = self.allowance(urgent=urgent)
        room = room if allowance is None else min(room, allowance * CREDIT_BYTES)
        pieces, entries = self._pack(now, room)
        reports = self._take_reports(entries, room)
        paid = self._take_receipts(entries, room)
        if not entries:
            return None
        number, self._next_number = self._next_number, self._next_number + 1
        self._loads[number], self._reported[number] = pieces, reports
        self._paid[number] = paid
        body = encode(entries, key=self._key)
        return Transmission(number, body, urgent, self._tries(pieces))

    def _take_reports(self, entries: list[Entry], room: int) -> dict[int, Entry]:
        """Add the reports that still fit to `entries`."""
        taken = {}
        for sequence, report in list(self._reports.items()):
            if len(encode([*entries, report], key=self._key)) <= room:
                entries.append(report)
                taken[sequence] = self._reports.pop(sequence)
        return taken

    def _take_receipts(self, entries: list[Entry], room: int) -> dict[int, Entry]:
        """Add those that cost nothing; where nothing else goes, those that are worth it."""
        if entries:
            size = len(encode(entries, key=self._key))
            room = min(room, -(-size // CREDIT_BYTES) * CREDIT_BYTES)
        elif not self._has_to_tell():
            return {}
        taken: dict[int, Entry] = {}
        for sequence, receipt in sorted(self._owed.items(), key=lambda owed: not owed[1].sos):
            # Its own urgency was for getting here.
            entry = Entry(sequence, receipt.content, receipt.time)
            if len(encode([*entries, entry], key=self._key)) <= room:
                entries.append(entry)
                taken[sequence] = self._owed.pop(sequence)
        return taken

    def _pack(self, now: float, room: int) -> tuple[list[Piece], list[Entry]]:
        """The foremost Package, or one fragment of it, and what else fits beside it."""
        entries: list[Entry] = []
        pieces: list[Piece] = []
        passed: list[int] = []
        while len(pieces) + len(passed) <= RIDERS_MAX:
            key = self._queue.take(now)
            if key is None:
                break
            piece, entry = self._entry(key, whole_only=bool(pieces))
            size = len(encode([*entries, entry], key=self._key))
            if size > room or (pieces and (size > self._terms.fill or key in self._alone)):
                passed.append(key)
                if not pieces:
                    break
                continue
            entries.append(entry)
            pieces.append(piece)
            if piece.count > 1 or key in self._alone:
                break
        for key in passed:
            self._queue.put_back(key)
        return pieces, entries

    def _tries(self, pieces: list[Piece]) -> int:
        return outbound.tries(self._journal, self.channel, pieces[0].sequence) if pieces else 0

    def _entry(self, sequence: int, *, whole_only: bool) -> tuple[Piece, Entry]:
        known = outbound.by_sequence(self._journal, sequence)
        assert known is not None, "what waits is kept"
        entry = _entry_of(sequence, known.package, known.accepted)
        whole = encode([entry])
        room = self._terms.size - self._tag_bytes()
        if whole_only or len(whole) <= room:
            return Piece(sequence), entry
        fragments = split(whole, room)
        count = len(fragments)
        gone = outbound.fragments_sent(self._journal, self.channel, sequence, count)
        fragment = next(f for f in fragments if f.index not in gone)
        return Piece(sequence, fragment.index, count), Entry(sequence, fragment)

    def _tag_bytes(self) -> int:
        return 0 if self._key is None else TAG_BYTES + 1

    def unsettled(self) -> Intent | None:
        return self._intent

    async def intend(self, transmission: Transmission, *, modem: str, momsn: int) -> None:
        intent = Intent(transmission, modem, momsn)
        pieces = self._loads[transmission.number]
        await self._journal.commit(outbound.intend(self.channel, intent, pieces))
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
        pieces = self._loads[transmission.number]
        if outcome is Outcome.SENT:
            await self._settle_sent(transmission, pieces)
        elif outcome is Outcome.REFUSED and len(pieces) == 1:
            await self._book(outbound.tried, pieces, "refused", reason)
            await self._finish(pieces, Leg(Status.ERROR, reason or "refused"))
        else:
            if outcome is Outcome.REFUSED:
                # One of several cannot be sent: each shows on its own which.
                self._alone |= {piece.sequence for piece in pieces}
            await self._settle_not_sent(pieces, retry_after, reason)
        del self._loads[transmission.number]
        reports = self._reported.pop(transmission.number, {})
        paid = self._paid.pop(transmission.number, {})
        if outcome is not Outcome.SENT:
            self._owed |= paid
        if outcome is not Outcome.SENT and pieces:
            # Alone, a report has no retry of its own: it is asked for again when it is due.
            self._reports = reports | self._reports
        if self._intent is not None and self._intent.transmission.number == transmission.number:
            self._intent = None
        for piece in pieces:
            if piece.sequence in self._settled:
                self._settled.pop(piece.sequence)[0].set()
        # One whose time ran out while it was taken ends now.
        self._sooner.set()
        self._wake()

    async def _settle_sent(self, transmission: Transmission, pieces: list[Piece]) -> None:
        size = len(transmission.body)
        spent = Spent(size, self._terms.credits(size))
        record = outbound.sent(self.channel, pieces, self._day(), spent)
        paid = self._paid.get(transmission.number, {})

        told = _cost_of(transmission, spent, len(pieces))
        now = self._clock()

        def store(db: sqlite3.Connection) -> None:
            record(db)
            inbound.told(db, self.channel, paid)
            for piece in pieces:
                story.note(db, [piece.sequence], self.channel, "sent", _part(piece) + told, now)

        await self._journal.commit(store)
        self.link.last_success = self._clock()
        complete = [piece for piece in pieces if self._is_complete(piece)]
        await self._finish(complete, Leg(Status.DELIVERED))
        for piece in pieces:
            if piece not in complete:
                await self._return(piece.sequence, -inf)

    def _is_complete(self, piece: Piece) -> bool:
        if piece.count == 1:
            return True
        gone = outbound.fragments_sent(self._journal, self.channel, piece.sequence, piece.count)
        return len(gone) == piece.count

    async def _settle_not_sent(self, pieces: list[Piece], retry_after: float, reason: str) -> None:
        await self._book(outbound.tried, pieces, "not sent", reason)
        due = trio.current_time() + retry_after if retry_after > 0 else -inf
        for piece in pieces:
            await self._return(piece.sequence, due)

    async def _book(
        self,
        record: Callable[[Channel, list[int]], Operation[None]],
        pieces: list[Piece],
        event: str,
        detail: str,
    ) -> None:
        """Record how a transmission ended, and tell it in the story of each Package in it."""
        sequences = [piece.sequence for piece in pieces]
        operation, now = record(self.channel, sequences), self._clock()

        def store(db: sqlite3.Connection) -> None:
            operation(db)
            story.note(db, sequences, self.channel, event, detail, now)

        await self._journal.commit(store)

    async def _return(self, sequence: int, due: float) -> None:
        """Back into the queue, unless it was canceled or replaced meanwhile."""
        if sequence not in self._queue:
            return
        if sequence in self._settled:
            self._queue.remove(sequence)
            leg = Leg(Status.CANCELED, self._settled[sequence][1])
        elif self._queue.put_back(sequence, due):
            return
        else:
            leg = Leg(Status.COLLAPSED, "replaced by a newer Package")
        await self._end([Ended(sequence, self.channel, leg)])

    async def _finish(self, pieces: list[Piece], leg: Leg) -> None:
        for piece in pieces:
            self._queue.remove(piece.sequence)
            self._alone.discard(piece.sequence)
        if pieces:
            await self._end([Ended(piece.sequence, self.channel, leg) for piece in pieces])

    async def receive(self, body: bytes) -> None:
        await self._inbox.take_in(body, self, tagged=not self._terms.authentic)
        await self._spend(Spent(len(body), self._terms.credits(len(body))))

    def allowance(self, *, urgent: bool = False) -> int | None:
        if self._budget is None:
            return None
        kept = 0 if urgent else self._reserve
        return max(0, self._budget - kept - self.spent().credits)

    async def spend(self, credit: int) -> None:
        await self._spend(Spent(0, credit))

    async def _spend(self, spent: Spent) -> None:
        await self._journal.commit(outbound.spend(self.channel, self._day(), spent))

    def _day(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).date().isoformat()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _entry_of(sequence: int, package: Package, accepted: float) -> Entry:
    moment = getattr(package.item, "timestamp", None)
    time = int(accepted if moment is None else moment.timestamp())
    return Entry(sequence, package.item, time, package.sos)


def _part(piece: Piece) -> str:
    return "" if piece.count == 1 else f"fragment {piece.position + 1} of {piece.count}: "


def _cost_of(transmission: Transmission, spent: Spent, together: int) -> str:
    cost = f", {spent.credits} credits" if spent.credits else ""
    shared = f", shared by {together}" if together > 1 else ""
    return f"{len(transmission.body)} bytes{cost}{shared}"
