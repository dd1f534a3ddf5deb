"""One channel's side of the queue: it packs what is due into transmissions and books their end.

This is what a channel driver talks to (the contract is in `channels`). It knows the queue, the
journal and the on-air format, and no modem.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from typing import NamedTuple, Protocol

import trio

from fieldagent.agent.channels.contract import ChannelLink, Intent, Transmission
from fieldagent.agent.channels.radio_modem import AIR_BYTES, WINDOW
from fieldagent.agent.inbound.reception import Repeater
from fieldagent.agent.journal import history as story
from fieldagent.agent.journal import outbound
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.journal.records import Accepted, EndedLeg, Piece, Spent
from fieldagent.agent.outbound.burst import Burst, Bursts
from fieldagent.agent.outbound.piggyback import HubRiders, Ride, Riders
from fieldagent.agent.outbound.queue import Queue
from fieldagent.package.delivery import Leg
from fieldagent.package.package import SOS_PRIORITY, Channel, Package, Status, recorded
from fieldagent.wire.credit import CREDIT_BYTES, credits_for
from fieldagent.wire.envelope import TAG_BYTES, Ack, Content, Entry, encode
from fieldagent.wire.fragments import lacking, split
from fieldagent.wire.link import BODY_BYTES
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.sbd import MO_BYTES

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChannelTerms:
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
    shared: bool = False
    """Everybody in earshot hears a message, and answers in one of their own."""


TERMS = {
    Channel.SATELLITE: ChannelTerms(MO_BYTES, MO_BYTES, credits_for),
    Channel.CELLULAR: ChannelTerms(
        BODY_BYTES, 4_096, lambda size: 0, authentic=True, confirms=True
    ),
    # What is left of a packet holds the plea, and an answer or two.
    Channel.RADIO: ChannelTerms(
        AIR_BYTES - 20, AIR_BYTES - 20, lambda size: 0, confirms=True, shared=True
    ),
}


class Cost(NamedTuple):
    """What a Package takes on one channel."""

    parts: int
    """Messages that carry nothing else."""
    bytes: int
    credits: int
    left: int | None
    """Credits that may still be spent today; None without a budget."""


class Arrivals(Protocol):
    """Where what comes in over a channel goes."""

    async def take_in(self, body: bytes, repeater: Repeater, *, tagged: bool) -> None:
        """Damage in it is logged, never raised."""


class End(Protocol):
    def __call__(
        self, ended: list[EndedLeg], record: Operation[None] | None = None
    ) -> Awaitable[None]:
        """Record how legs ended, with `record` in the same commit."""


@dataclass(slots=True)
class _Unheard:
    sequences: set[int]
    """Packages in the transmission that no station has said to have heard."""
    none: trio.Event = field(default_factory=trio.Event)
    missed: bool = False
    """They have heard what was transmitted after it."""


KNOWN_TO_HEAR = 60.0
"""Seconds since the last answer for which somebody counts as listening."""
FAILED = "the driver failed"
AGAIN, AGAIN_MAX = 5.0, 60.0
"""Seconds that a Package waits for each time that a driver failed with it, and the longest."""
RIDERS_MAX = 32
"""How many further Packages are looked at to fill up one transmission."""


class ChannelOutbox:
    """Implements `channels.Outbox`. `clock` is Unix time; the queue runs on trio's own.

    On the air, where there are many, `station` says who sends.
    """

    def __init__(
        self,
        channel: Channel,
        journal: Journal,
        inbox: Arrivals,
        *,
        clock: Callable[[], float],
        end: End,
        key: bytes | None = None,
        budget: int | None = None,
        reserve: int = 0,
        riders: Riders | None = None,
        station: int = 0,
    ) -> None:
        self.channel = channel
        self._riders = riders or HubRiders(journal, channel)
        self._station = station
        self.link = ChannelLink()
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
        self._expired: list[int] = []
        """Their time is over, which is not recorded yet."""
        self._expiry = inf
        """When `run` looks for expired Packages next, on trio's clock."""
        self._sooner = trio.Event()
        self._loads: dict[int, list[Piece]] = {}
        self._next_number = 1
        self._intent: Intent | None = None
        self._settled: dict[int, tuple[trio.Event, str]] = {}
        """For whoever waits until a Package in flight can be withdrawn, and why it is to be."""
        self._rides: dict[int, Ride] = {}
        self._unheard: dict[int, _Unheard] = {}
        """On the air, what no station has answered yet of a transmission."""
        self._bursts = Bursts()
        self._answered = -inf
        """When a station last answered; trio's clock."""
        self._alone: set[int] = set()
        """Packages that travel alone, since a transmission that held them was refused."""
        known = outbound.intent_of(journal, channel)
        if known is not None:
            self._intent, self._loads[0] = known

    @property
    def owes(self) -> str | None:
        return None if self._terms.confirms else self.channel

    def tell(self) -> None:
        self._riders.look()
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
        await self._journal.persist(outbound.send_all_again(self.channel, sequence))
        self.add(known, None)

    async def repeat(self, sequence: int, positions: frozenset[int]) -> None:
        """The peer lacks these fragments of a Package: they go out again."""
        known = outbound.by_sequence(self._journal, sequence)
        if known is None or sequence in self._queue:
            return
        await self._journal.persist(outbound.send_again(self.channel, sequence, positions))
        self.add(known, None)

    def report(self, origin: int, sequence: int, count: int, arrived: frozenset[int]) -> None:
        """Tell the peer which fragments of its `sequence` have come."""
        self._riders.report(origin, sequence, count, arrived)
        self._wake()

    def answer(self) -> None:
        """The riders have something to tell."""
        self._wake()

    async def run(self) -> None:
        """End what outlives its time."""
        while True:
            self._sooner = trio.Event()
            now = trio.current_time()
            self._expired += self._queue.expire(now)
            if self._expired:
                count = len(self._expired)
                log.warning("%s: %d expired before they could be sent", self.channel, count)
                leg = Leg(Status.ERROR, "expired")
                await self._end([EndedLeg(key, self.channel, leg) for key in self._expired])
                self._expired.clear()
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
        key = self._foremost(trio.current_time())
        if key is None:
            return self._riders.wait() and not urgent and self.allowance() != 0
        sos = self._queue.priority(key) >= SOS_PRIORITY
        if urgent and not sos:
            return False
        allowance = self.allowance(urgent=sos)
        return allowance is None or self._cost(key) <= allowance

    def _foremost(self, now: float) -> int | None:
        """What goes next: of a Package that is under way another fragment may."""
        keys = [
            sequence
            for sequence in self._bursts.open()
            if sequence in self._queue and sequence not in self._settled
        ]
        waiting = self._queue.foremost(now)
        if waiting is not None:
            keys.append(waiting)
        return min(keys, key=self._queue.place, default=None)

    def _cost(self, sequence: int) -> int:
        _, _, entry = self._entry(sequence, whole_only=False)
        return self._terms.credits(self._size([entry]))

    def _size(self, entries: list[Entry], origin: int = 0) -> int:
        return len(encode(entries, origin=origin or self._station, key=self._key))

    def load(self, room: int) -> Transmission | None:
        now = trio.current_time()
        first = self._foremost(now)
        urgent = first is not None and self._queue.priority(first) >= SOS_PRIORITY
        allowance = self.allowance(urgent=urgent)
        room = room if allowance is None else min(room, allowance * CREDIT_BYTES)
        pieces, entries, origin = self._pack(now, room)
        ride = Ride()
        if origin == 0:
            # Words to our peer are our own, not those of whom we carry for.
            ride = self._riders.board(entries, room, self._size)
        if not entries:
            return None
        number, self._next_number = self._next_number, self._next_number + 1
        self._loads[number], self._rides[number] = pieces, ride
        body = encode(entries, origin=origin or self._station, key=self._key)
        if self._terms.shared:
            self._unheard[number] = _Unheard({piece.sequence for piece in pieces})
        more = any(self._bursts[p.sequence].waiting for p in pieces if p.count > 1)
        return Transmission(number, body, urgent, self._tries(pieces), bool(pieces), more)

    def _pack(self, now: float, room: int) -> tuple[list[Piece], list[Entry], int]:
        """The foremost Package, or one fragment of it, what else fits beside it, and whose all
        that is: 0 is ourselves."""
        entries: list[Entry] = []
        pieces: list[Piece] = []
        passed: list[int] = []
        whose = 0
        while len(pieces) + len(passed) <= RIDERS_MAX:
            key = None if pieces or passed else self._foremost(now)
            if key not in self._bursts:
                key = self._queue.take(now)
            if key is None:
                break
            piece, origin, entry = self._entry(key, whole_only=bool(pieces))
            whose = whose if pieces else origin
            size = self._size([*entries, entry], origin)
            lone = key in self._alone or origin != whose
            if size > room or (pieces and (size > self._terms.fill or lone)):
                passed.append(key)
                if not pieces:
                    break
                continue
            entries.append(entry)
            pieces.append(piece)
            if piece.count > 1:
                self._bursts.launch(piece, self._positions(piece.sequence, piece.count))
            if piece.count > 1 or key in self._alone:
                break
        for key in passed:
            if key not in self._bursts:
                self._queue.put_back(key)
        return pieces, entries, whose if pieces else 0

    def _tries(self, pieces: list[Piece]) -> int:
        return outbound.tries(self._journal, self.channel, pieces[0].sequence) if pieces else 0

    def _entry(self, sequence: int, *, whole_only: bool) -> tuple[Piece, int, Entry]:
        """What of it goes next, whose it is (0: our own), and that as an entry."""
        known = outbound.by_sequence(self._journal, sequence)
        assert known is not None, "what waits is kept"
        number = known.origin_sequence if known.origin else sequence
        entry = _entry_of(number, known.package, known.accepted)
        whole = encode([entry])
        room = self._terms.size - self._tag_bytes()
        if whole_only or len(whole) <= room:
            return Piece(sequence), known.origin, entry
        fragments = split(whole, room)
        count = len(fragments)
        index = self._positions(sequence, count)[0]
        return Piece(sequence, index, count), known.origin, Entry(number, fragments[index])

    def _positions(self, sequence: int, count: int) -> list[int]:
        """The fragments of it that go next, together where somebody is known to hear them."""
        if sequence in self._bursts:
            return self._bursts[sequence].waiting
        held = outbound.fragments_held(self._journal, self.channel, sequence, count)
        together, tries = 1, 0
        if self._terms.shared:
            tries = outbound.tries(self._journal, self.channel, sequence)
            heard = held or trio.current_time() - self._answered < KNOWN_TO_HEAR
            together = WINDOW if heard else 1
        # Where nothing lacks, its end was not written down: who has it all says so again.
        return lacking(count, held.values(), tries)[:together] or [0]

    def _tag_bytes(self) -> int:
        return 0 if self._key is None else TAG_BYTES + 1

    def unsettled(self) -> Intent | None:
        return self._intent

    async def intend(self, transmission: Transmission, *, modem: str, momsn: int) -> None:
        intent = Intent(transmission, modem, momsn)
        pieces = self._loads[transmission.number]
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
        pieces = self._loads[transmission.number]
        sent = outcome is Outcome.SENT
        landed = {piece: self._bursts.land(piece, sent=sent) for piece in pieces}
        over = {piece: burst for piece, burst in landed.items() if burst is not None}
        if sent:
            await self._settle_sent(transmission, pieces, over)
        elif outcome is Outcome.REFUSED and len(pieces) == 1:
            await self._book(outbound.tried, pieces, "refused", reason)
            await self._finish(pieces, Leg(Status.ERROR, reason or "refused"))
        else:
            if outcome is Outcome.REFUSED:
                # One of several cannot be sent: each shows on its own which.
                self._alone |= {piece.sequence for piece in pieces}
            await self._settle_not_sent(over, retry_after, reason)
        del self._loads[transmission.number]
        ride = self._rides.pop(transmission.number, Ride())
        self._unheard.pop(transmission.number, None)
        self._riders.alight(ride, sent=sent, beside_packages=bool(pieces))
        if self._intent is not None and self._intent.transmission.number == transmission.number:
            self._intent = None
        self._landed(piece.sequence for piece in pieces)

    def _landed(self, sequences: Iterable[int]) -> None:
        """They are not under way any more."""
        for sequence in sequences:
            if sequence in self._settled and sequence not in self._bursts:
                self._settled.pop(sequence)[0].set()
        # One whose time ran out while it was taken ends now.
        self._sooner.set()
        self._wake()

    async def give_back(self) -> None:
        """What a driver that failed had in flight waits again; an intent stays, to be resolved.

        Each travels alone from here on, and ever later: one that makes drivers fail must hold up no
        other.
        """
        begun = () if self._intent is None else (self._intent.transmission.number,)
        kept = {piece.sequence for number in begun for piece in self._loads[number]}
        for number in self._loads.keys() - {*begun}:
            ride, pieces = self._rides.pop(number, Ride()), self._loads.pop(number)
            self._unheard.pop(number, None)
            self._riders.alight(ride, sent=False, beside_packages=bool(pieces))
        self._bursts.clear()
        back = [sequence for sequence in self._queue.taken() if sequence not in kept]
        if back:
            self._alone |= {*back}
            await self._book(outbound.tried, [Piece(each) for each in back], "not sent", FAILED)
        now = trio.current_time()
        for sequence in back:
            tries = outbound.tries(self._journal, self.channel, sequence) - 1
            await self._return(sequence, now + min(AGAIN_MAX, tries * AGAIN))
        self._landed(back)

    async def _settle_sent(
        self, transmission: Transmission, pieces: list[Piece], over: Collection[Piece]
    ) -> None:
        size = len(transmission.body)
        spent = Spent(size, self._terms.credits(size))
        shared = self._terms.shared
        record = outbound.sent(self.channel, pieces, self._day(), spent, shared=shared)
        ride = self._rides.get(transmission.number, Ride())

        text = _cost_of(transmission, spent, len(pieces))
        now = self._clock()

        def store(db: sqlite3.Connection) -> None:
            record(db)
            self._riders.arrived(db, ride)
            for piece in pieces:
                story.note(db, [piece.sequence], self.channel, "sent", _part(piece) + text, now)

        complete = [piece for piece in pieces if self._completes(piece)]
        await self._finish(complete, Leg(Status.DELIVERED), store)
        self.link.last_success = self._clock()
        for piece in over:
            if piece not in complete:
                await self._return(piece.sequence, -inf)

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

    async def _settle_not_sent(
        self, over: Mapping[Piece, Burst], retry_after: float, reason: str
    ) -> None:
        # Of a burst that was heard in part the rest goes at once.
        silent = [piece for piece, burst in over.items() if not burst.heard]
        if silent:
            await self._book(outbound.tried, silent, "not sent", reason)
        due = trio.current_time() + retry_after if retry_after > 0 else -inf
        for piece in over:
            await self._return(piece.sequence, due if piece in silent else -inf)

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

        await self._journal.persist(store)

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
        await self._end([EndedLeg(sequence, self.channel, leg)])

    async def _finish(
        self, pieces: list[Piece], leg: Leg, record: Operation[None] | None = None
    ) -> None:
        kept = [self._queue.kept(p.sequence) for p in pieces if p.sequence in self._queue]
        for piece in pieces:
            self._queue.remove(piece.sequence)
        ended = [EndedLeg(piece.sequence, self.channel, leg) for piece in pieces]
        try:
            await self._end(ended, record)
        except Exception:
            for each in kept:
                self._queue.restore(each)
            raise
        self._alone -= {piece.sequence for piece in pieces}

    async def receive(self, body: bytes) -> None:
        await self._inbox.take_in(body, self, tagged=not self._terms.authentic)
        if not self._terms.shared:
            # What others say on the air costs nothing, and is not worth a write.
            await self._spend(Spent(len(body), self._terms.credits(len(body))))

    # On the air.

    async def acknowledged(self, transmission: Transmission) -> bool:
        unheard = self._unheard.get(transmission.number)
        if unheard is None:
            return True
        await unheard.none.wait()
        return not unheard.missed

    async def heard(self, sequence: int, heard: Ack) -> None:
        """A station has said so, and the journal knows it."""
        self._answered = trio.current_time()
        flights = {
            number: (unheard, piece)
            for number, unheard in self._unheard.items()
            for piece in self._loads[number]
            if piece.sequence == sequence
        }
        last = max((n for n, (_, piece) in flights.items() if _answers(heard, piece)), default=0)
        for number, (unheard, piece) in flights.items():
            if _answers(heard, piece):
                unheard.sequences.discard(sequence)
            elif number < last:
                unheard.missed = True
            if unheard.missed or not unheard.sequences:
                unheard.none.set()
        if heard.whole and not last and sequence in self._queue:
            # The answer came when nobody waited for it any more.
            await self._finish([Piece(sequence)], Leg(Status.DELIVERED))
            self._wake()

    def try_again(self) -> None:
        """Somebody is in earshot: what waits for its next try need not wait."""
        for sequence in self.waiting():
            self._queue.hasten(sequence)
        self._wake()

    def allowance(self, *, urgent: bool = False) -> int | None:
        if self._budget is None:
            return None
        kept = 0 if urgent else self._reserve
        return max(0, self._budget - kept - self.spent().credits)

    async def spend(self, credit: int) -> None:
        await self._spend(Spent(0, credit))

    async def _spend(self, spent: Spent) -> None:
        await self._journal.persist(outbound.spend(self.channel, self._day(), spent))

    def _day(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).date().isoformat()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _entry_of(sequence: int, package: Package, accepted: float) -> Entry:
    moment = recorded(package.item)
    time = int(accepted if moment is None else moment.timestamp())
    return Entry(sequence, package.item, time, package.sos)


def _answers(heard: Ack, piece: Piece) -> bool:
    return heard.whole or (heard.count == piece.count and piece.position in heard.arrived)


def _part(piece: Piece) -> str:
    return "" if piece.count == 1 else f"fragment {piece.position + 1} of {piece.count}: "


def _cost_of(transmission: Transmission, spent: Spent, together: int) -> str:
    cost = f", {spent.credits} credits" if spent.credits else ""
    shared = f", shared by {together}" if together > 1 else ""
    return f"{len(transmission.body)} bytes{cost}{shared}"
