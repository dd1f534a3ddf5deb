"""What one channel has to send: the Packages that wait, and those in flight. Decides, and waits.

A Package is here from `add` until it ends. It waits, is taken into a transmission (`take`,
`depart`), and is then `finished`, or waits again (`put_back`). Whoever ends it here records that in
the journal: the endings that these methods return are decided, and not yet written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import inf

import trio

from fieldagent.agent.journal.records import Accepted, EndedLeg, Piece
from fieldagent.agent.outbound import queue as order
from fieldagent.agent.outbound.burst import Bursts
from fieldagent.agent.outbound.channel_limits import LIMITS
from fieldagent.agent.outbound.queue import Queue
from fieldagent.package.delivery import Leg
from fieldagent.package.package import SOS_PRIORITY, Channel, Package, Status
from fieldagent.package.writing import kind_of
from fieldagent.system.lazy_named_tuple import NamedTuple

SLICE = 200
"""Packages that expire in one commit."""
REPLACED = Leg(Status.COLLAPSED, "replaced by a newer Package")


class Withdrawn(NamedTuple):
    out: list[int]
    """Packages that are not here any more; that they ended is to be written down."""
    in_flight: list[trio.Event]
    """Of each that is in flight, set once that is over."""


class ChannelQueue:
    """Times are trio's. `doubtful` is what an earlier run of the program began to transmit and
    never settled: it counts as in flight, under the number 0, also where it holds words to the peer
    alone. None: there is nothing of that."""

    def __init__(self, channel: Channel, doubtful: Sequence[Piece] | None = None) -> None:
        self.channel = channel
        self.limits = LIMITS[channel]
        self.bursts = Bursts()
        self.gathering: set[int] = set()
        """Packages that wait for others to go with; some may have ended since."""
        self.tried: set[int] = set()
        """Packages that were tried in vain; some may have ended since."""
        self.alone: set[int] = set()
        """Packages that travel alone, since a transmission that held them was refused."""
        self.in_flight: dict[int, list[Piece]] = {} if doubtful is None else {0: list(doubtful)}
        """By the transmission's number."""
        self.held_kinds: set[str] = set()
        """Kinds of what is posted that wait here until they are resumed; no SOS is one."""
        self.held: set[int] = set()
        """Packages that wait for that."""
        self.changed = trio.Event()
        """Set when something was added or settled, and then replaced."""
        self._queue = Queue()
        self._withdrawn: dict[int, tuple[trio.Event, str]] = {}
        """Packages in flight that are to go no further: what is set once they are down, and why."""
        self._failed: list[EndedLeg] = []
        """What `next_expired` has not told yet."""
        self._expiry = inf
        """When `next_expired` looks again."""
        self._sooner = trio.Event()

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._queue

    def __len__(self) -> int:
        return len(self._queue)

    def wake(self) -> None:
        """Wake who waits for something to send: there is news."""
        self.changed.set()
        self.changed = trio.Event()

    # What the agent does with it.

    @contextmanager
    def replacing(self, package: Package) -> Iterator[list[int]]:
        """Hold the sequences that a Package is going to replace, and yield them. None of them
        leaves in this block, and those that it has not replaced by the end wait again."""
        held = self._queue.hold(package.collapse_key, sos=package.sos)
        try:
            yield held
        finally:
            for sequence in held:
                self._queue.release(sequence)
            if held:
                self.wake()

    def add(self, accepted: Accepted, life: float | None, delay: float = 0.0) -> list[int]:
        """Queue it for `life` seconds (None: for ever), to leave after `delay` seconds at the
        earliest.

        The sequences that it replaces come back, and are forgotten here.
        """
        package, sequence = accepted.package, accepted.sequence
        now = trio.current_time()
        expires = inf if life is None else now + life
        if self.held_kinds and not package.urgent and kind_of(package.item) in self.held_kinds:
            self.held.add(sequence)
            delay = inf
        gathers = package.gather is not None and not package.urgent
        if gathers and delay > 0:
            self.gathering.add(sequence)
        replaced = self._queue.add(
            sequence,
            priority=_priority(accepted),
            collapse_key=package.collapse_key,
            sos=package.sos,
            expires=expires,
            due=now + delay if delay > 0 else -inf,
            taken=any(piece.sequence == sequence for piece in self.in_flight.get(0, ())),
            newest_first=gathers,
        )
        if self.held.intersection(replaced):
            # It has got the place of one that was held, and need not be of its kind.
            self.held.difference_update(replaced)
            self.hasten(sequence)
        if expires < self._expiry:
            self._sooner.set()
        self.wake()
        return replaced

    def waiting(self) -> list[int]:
        """List every Package that is here, those in flight among them."""
        return self._queue.keys()

    def hasten(self, *sequences: int) -> None:
        """Let these wait no longer for a cheaper channel, or for their next try."""
        for sequence in sequences:
            if sequence not in self.held:
                self._queue.hasten(sequence)
        self.wake()

    def withdraw(self, sequences: Iterable[int], why: str, *, arrived: bool = False) -> Withdrawn:
        """Take out those that are here, as they have arrived by another channel or are not wanted
        any more. What is in flight goes no further."""
        in_flight = self._queue.taken()
        withdrawn = Withdrawn([], [])
        for sequence in sequences:
            if sequence in in_flight:
                event, _ = self._withdrawn.setdefault(sequence, (trio.Event(), why))
                withdrawn.in_flight.append(event)
            elif self._queue.remove(sequence, arrived=arrived):
                self.held.discard(sequence)
                withdrawn.out.append(sequence)
        if withdrawn.out:
            self.wake()
        return withdrawn

    async def next_expired(self) -> list[EndedLeg]:
        """Wait until some have outlived their time, or failed for another reason; they are
        forgotten here."""
        while True:
            self._sooner = trio.Event()
            now = trio.current_time()
            failed, self._failed = self._failed, []
            if failed:
                return failed
            if expired := self._queue.expire(now, SLICE):
                self.held.difference_update(expired)
                leg = Leg(Status.ERROR, "expired")
                return [EndedLeg(key, self.channel, leg) for key in expired]
            self._expiry = self._queue.next_change(now)
            with trio.move_on_at(self._expiry):
                await self._sooner.wait()

    # What packing and the driver do with it.

    def foremost(self, now: float) -> int | None:
        """Return what goes next: of a Package that is under way another fragment may."""
        keys = [
            sequence
            for sequence in self.bursts.open()
            if sequence in self._queue and sequence not in self._withdrawn
        ]
        waiting = self._queue.foremost(now)
        if waiting is not None:
            keys.append(waiting)
        return min(keys, key=self._queue.place, default=None)

    def is_urgent(self, sequence: int) -> bool:
        """Return whether it has the priority of an SOS. Raises KeyError where it does not wait."""
        return -self._queue.place(sequence)[0] >= SOS_PRIORITY

    def is_sos_of_others(self, sequence: int) -> bool:
        """Return True for an SOS that the kit's own people did not raise. Raises KeyError if it
        does not wait."""
        return -self._queue.place(sequence)[0] == SOS_PRIORITY

    def next_change(self, now: float) -> float:
        """Return when another may become due, or expires."""
        return self._queue.next_change(now)

    def take(self, now: float, *, under_way: bool) -> int | None:
        """Take the foremost of what waits; with `under_way` a further fragment counts, too."""
        key = self.foremost(now) if under_way else None
        return key if key in self.bursts else self._queue.take(now)

    def leave(self, sequence: int) -> None:
        """Leave one that was taken, and does not fit, to wait in its old place."""
        if sequence not in self.bursts:
            self._queue.put_back(sequence)

    def finish(self, sequence: int, leg: Leg | None = None, *, arrived: bool = False) -> None:
        """Remove one that ended here. With a leg `next_expired` tells that it did, and how."""
        if leg is not None:
            self._failed.append(EndedLeg(sequence, self.channel, leg))
            self._sooner.set()
        self._queue.remove(sequence, arrived=arrived)
        self.alone.discard(sequence)
        self.tried.discard(sequence)
        self.held.discard(sequence)

    def ends(self, sequences: Iterable[int]) -> list[EndedLeg]:
        """Return those of the Packages in flight that `put_back` would end, as things stand now."""
        legs: dict[int, Leg] = {}
        for sequence in sequences:
            if sequence in self._withdrawn and sequence in self._queue:
                legs[sequence] = Leg(Status.CANCELED, self._withdrawn[sequence][1])
            elif sequence in self._queue and self._queue.is_superseded(sequence):
                legs[sequence] = REPLACED
        return [EndedLeg(sequence, self.channel, leg) for sequence, leg in legs.items()]

    def put_back(self, sequence: int, due: float) -> EndedLeg | None:
        """Put back one that was not sent, or not all of it: it waits until `due`, unless it was
        withdrawn or replaced meanwhile. Return its end where that ends it."""
        (ended,) = self.ends([sequence]) or (None,)
        if ended is not None and ended.leg is not REPLACED:
            self.finish(sequence)
        elif sequence in self._queue:
            # A newer one that replaces it gets its place.
            waits = sequence in self.held and not self._queue.is_superseded(sequence)
            self._queue.put_back(sequence, inf if waits else due)
            self.tried.add(sequence)
        return ended

    def taken(self) -> set[int]:
        return self._queue.taken()

    def landed(self, sequences: Iterable[int]) -> None:
        """Note that these are in flight no more, unless another fragment is, or its end is being
        written."""
        for sequence in sequences:
            if sequence in self._withdrawn and sequence not in self._queue.taken():
                self._withdrawn.pop(sequence)[0].set()
        # One whose time ran out while it was taken ends now.
        self._sooner.set()
        self.wake()


def _priority(accepted: Accepted) -> int:
    """Return the place in the queue: an SOS of the kit's own people goes before one of others."""
    package = accepted.package
    if not package.urgent:
        return package.priority
    return SOS_PRIORITY if accepted.is_of_others else max(package.priority, SOS_PRIORITY) + 1


def gather(queue: ChannelQueue) -> None:
    """Let what waits for company go along: something goes."""
    for sequence in queue.gathering - queue.held:
        queue._queue.hasten(sequence)
    queue.gathering.clear()


def hold_back(queue: ChannelQueue, kind: str, sequences: Iterable[int]) -> None:
    """Let that kind wait from now on, and these that are of it; what is in flight, once it is
    back."""
    queue.held_kinds.add(kind)
    for sequence in sequences:
        if sequence in queue:
            queue.held.add(sequence)
            queue._queue.put_off(sequence)
    queue.wake()


def let_go(queue: ChannelQueue, kind: str, sequences: Iterable[int]) -> None:
    """Let that kind wait no longer, nor these that are of it."""
    queue.held_kinds.discard(kind)
    released = queue.held.intersection(sequences)
    queue.held -= released
    queue.hasten(*released)


def try_again(queue: ChannelQueue) -> None:
    """Let what waits for its next try go at once."""
    tried, queue.tried = queue.tried, set()
    queue.hasten(*tried)


def due(queue: ChannelQueue, sequence: int) -> float:
    """Return when it may leave; long ago where it may at once, or is in flight. trio's clock."""
    return -inf if sequence in queue.taken() else order.due(queue._queue, sequence)
