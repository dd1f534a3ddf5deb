"""Queue of one channel: its waiting Packages and its Packages in flight. This module does no I/O.

A Package is in the queue from `add` until its end. The Package waits, is taken into a transmission
(`pop_due`), and then ends (`finish`) or waits again (`requeue`). If one of these methods ends a
Package, it returns the ending. The caller must record the ending in the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from math import inf

import trio

from fieldagent.agent.journal.records import EndedDelivery, Segment, StoredPackage
from fieldagent.agent.outbound.channel_limits import LIMITS
from fieldagent.agent.outbound.queue import Queue
from fieldagent.package.delivery import ChannelDelivery
from fieldagent.package.package import SOS_PRIORITY, Channel, Package, Status
from fieldagent.package.writing import get_kind
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple


@dataclass(slots=True)
class Burst:
    """Several fragments of one Package that are in flight at the same time."""

    waiting: list[int]
    """Positions of the fragments that must still be sent. A more urgent Package is sent first."""
    in_flight: set[int] = field(default_factory=set)
    heard: bool = False
    """True if at least one fragment of the burst was sent."""


class Bursts(dict[int, Burst]):
    """The burst of each Package, by the Package's sequence."""

    def open(self) -> list[int]:
        """Return the sequences of the Packages whose next fragment may be sent while earlier
        fragments are still in flight.
        """
        return [sequence for sequence, burst in self.items() if burst.waiting]

    def start_segment(self, segment: Segment, positions: list[int]) -> None:
        """Record that the segment is in flight, and that the fragments at the other `positions`
        will follow.
        """
        burst = self.setdefault(segment.sequence, Burst(positions))
        burst.waiting.remove(segment.position)
        burst.in_flight.add(segment.position)

    def finish_segment(self, segment: Segment, *, is_sent: bool) -> Burst | None:
        """Record that a segment is no longer in flight. Return its burst if no other segment of the
        burst is in flight, otherwise None.
        """
        burst = self.get(segment.sequence, Burst([]))
        burst.in_flight.discard(segment.position)
        burst.heard |= is_sent
        if not is_sent:
            # The receiver is missing this fragment: send no more fragments until the burst has
            # ended.
            burst.waiting.clear()
        if burst.in_flight:
            return None
        self.pop(segment.sequence, None)
        return burst

    def finish_segments(
        self, segments: Iterable[Segment], *, is_sent: bool
    ) -> dict[Segment, Burst]:
        """Record that these segments are no longer in flight. Return the finished bursts, each by
        its last segment.
        """
        bursts = {segment: self.finish_segment(segment, is_sent=is_sent) for segment in segments}
        return {segment: burst for segment, burst in bursts.items() if burst is not None}


EXPIRE_BATCH = 200
"""Number of Packages that expire in one commit."""
REPLACED_DELIVERY = ChannelDelivery(Status.COLLAPSED, "replaced by a newer Package")


class WithdrawalResult(NamedTuple):
    removed: list[int]
    """Packages that were removed. The caller must record their ends."""
    in_flight: list[trio.Event]
    """One event for each withdrawn Package that is in flight, set when its transmission is over."""


class ChannelQueue:
    """Queue of one channel. Times are on trio's clock. `doubtful_segments` contains the segments of
    a transmission that an earlier run began and did not settle. It is None if there is no such
    transmission. This transmission is in flight with the number 0, even if it contains no Package.
    """

    def __init__(
        self, channel: Channel, doubtful_segments: Sequence[Segment] | None = None
    ) -> None:
        self.channel = channel
        self.limits = LIMITS[channel]
        self.bursts = Bursts()
        self.gathering: set[int] = set()
        """Packages that wait for other Packages to share a message; some of them may have ended
        already."""
        self.tried: set[int] = set()
        """Packages with a failed attempt; some of them may have ended already."""
        self.alone: set[int] = set()
        """Packages that are sent alone, because a transmission that contained them was refused."""
        self.in_flight: dict[int, list[Segment]] = (
            {} if doubtful_segments is None else {0: list(doubtful_segments)}
        )
        """Packages in flight, by the transmission's number."""
        self.held_kinds: set[str] = set()
        """Kinds of posted Packages that are held back until they are resumed; an SOS is never held
        back."""
        self.held: set[int] = set()
        """Sequences of single Packages that are held back until they are resumed."""
        self.changed = trio.Event()
        """Event that is set when a Package is added or settled. A new event then replaces it."""
        self._queue = Queue()
        self._withdrawn: dict[int, tuple[trio.Event, str]] = {}
        """Packages in flight that must not be sent again: the event to set when the transmission is
        over, and the reason."""
        self._failed_deliveries: list[EndedDelivery] = []
        """Endings that the next `wait_for_expired` returns."""
        self._expiry = inf
        """Time of the next check in `wait_for_expired`."""
        self._sooner = trio.Event()

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._queue

    def __len__(self) -> int:
        return len(self._queue)

    def wake(self) -> None:
        """Wake the tasks that wait for something to send."""
        self.changed.set()
        self.changed = trio.Event()

    @contextmanager
    def hold_replaced(self, package: Package) -> Iterator[list[int]]:
        """Hold the Packages that a new Package will replace, and yield their sequences. Inside the
        block, the held Packages cannot leave. After the block, held Packages that were not replaced
        wait again.
        """
        held_sequences = self._queue.hold_replaceable(package.collapse_key, sos=package.sos)
        try:
            yield held_sequences
        finally:
            for sequence in held_sequences:
                self._queue.release(sequence)
            if held_sequences:
                self.wake()

    def add(
        self, stored_package: StoredPackage, life: float | None, delay: float = 0.0
    ) -> list[int]:
        """Queue a Package that expires after `life` seconds (None: never), and may leave after
        `delay` seconds.

        Remove the Packages that the new Package replaces, and return their sequences.
        """
        package, sequence = stored_package.package, stored_package.sequence
        now = trio.current_time()
        expires = inf if life is None else now + life
        if self.held_kinds and not package.urgent and get_kind(package.item) in self.held_kinds:
            self.held.add(sequence)
            delay = inf
        gathers = package.gather is not None and not package.urgent
        if gathers and delay > 0:
            self.gathering.add(sequence)
        replaced = self._queue.add(
            sequence,
            priority=_get_priority(stored_package),
            collapse_key=package.collapse_key,
            sos=package.sos,
            expires=expires,
            due_time=now + delay if delay > 0 else -inf,
            is_taken=any(segment.sequence == sequence for segment in self.in_flight.get(0, ())),
            newest_first=gathers,
        )
        if self.held.intersection(replaced):
            # If the new Package replaced a held Package, but its own kind is not held, release it.
            self.held.difference_update(replaced)
            self.hasten(sequence)
        if expires < self._expiry:
            self._sooner.set()
        self.wake()
        return replaced

    def list_waiting(self) -> list[int]:
        """Return all Packages in the queue, including those in flight."""
        return self._queue.list_keys()

    def hasten(self, *sequences: int) -> None:
        """Make these Packages due now: they no longer wait for a cheaper channel or for a retry."""
        for sequence in sequences:
            if sequence not in self.held:
                self._queue.hasten(sequence)
        self.wake()

    def withdraw(
        self, sequences: Iterable[int], reason: str, *, is_arrived: bool = False
    ) -> WithdrawalResult:
        """Remove these Packages, because they arrived over another channel or are no longer wanted.
        Packages in flight are not sent again.
        """
        in_flight = self._queue.get_in_flight()
        withdrawn = WithdrawalResult([], [])
        for sequence in sequences:
            if sequence in in_flight:
                event, _ = self._withdrawn.setdefault(sequence, (trio.Event(), reason))
                withdrawn.in_flight.append(event)
            elif self._queue.remove(sequence, is_arrived=is_arrived):
                self.held.discard(sequence)
                withdrawn.removed.append(sequence)
        if withdrawn.removed:
            self.wake()
        return withdrawn

    async def wait_for_expired(self) -> list[EndedDelivery]:
        """Wait until Packages have expired, or until `finish` has stored endings. Remove the
        expired Packages, and return the endings.
        """
        while True:
            self._sooner = trio.Event()
            now = trio.current_time()
            failed, self._failed_deliveries = self._failed_deliveries, []
            if failed:
                return failed
            if expired := self._queue.expire(now, EXPIRE_BATCH):
                self.held.difference_update(expired)
                delivery = ChannelDelivery(Status.ERROR, "expired")
                return [EndedDelivery(key, self.channel, delivery) for key in expired]
            self._expiry = self._queue.compute_next_change(now)
            with trio.move_on_at(self._expiry):
                await self._sooner.wait()

    def find_foremost(self, now: float) -> int | None:
        """Return the next Package to send, or None. This can be a Package whose running burst has
        more fragments to send.
        """
        keys = [
            sequence
            for sequence in self.bursts.open()
            if sequence in self._queue and sequence not in self._withdrawn
        ]
        waiting = self._queue.find_foremost(now)
        if waiting is not None:
            keys.append(waiting)
        return min(keys, key=self._queue.find_place, default=None)

    def is_urgent(self, sequence: int) -> bool:
        """Return True if the Package has the priority of an SOS. Raises KeyError if it is not in
        the queue.
        """
        return -self._queue.find_place(sequence)[0] >= SOS_PRIORITY

    def is_sos_of_others(self, sequence: int) -> bool:
        """Return True for an SOS that the kit's own people did not raise. Raises KeyError if the
        Package is not in the queue.
        """
        return -self._queue.find_place(sequence)[0] == SOS_PRIORITY

    def compute_next_change(self, now: float) -> float:
        """Return the earliest time after `now` at which a Package becomes due or expires."""
        return self._queue.compute_next_change(now)

    def pop_due(self, now: float, *, includes_bursts: bool) -> int | None:
        """Take the most urgent Package that is due, and return its sequence. Return None if no
        Package is due. If `includes_bursts`, this can be a Package whose running burst has more
        fragments to send.
        """
        key = self.find_foremost(now) if includes_bursts else None
        return key if key in self.bursts else self._queue.pop_due(now)

    def requeue_unfitting(self, sequence: int) -> None:
        """Put a taken Package back into its old place, because the Package does not fit into the
        transmission.
        """
        if sequence not in self.bursts:
            self._queue.requeue(sequence)

    def finish(
        self, sequence: int, delivery: ChannelDelivery | None = None, *, is_arrived: bool = False
    ) -> None:
        """Remove a Package that has ended on this channel. If `delivery` is not None,
        `wait_for_expired` returns the ending.
        """
        if delivery is not None:
            self._failed_deliveries.append(EndedDelivery(sequence, self.channel, delivery))
            self._sooner.set()
        self._queue.remove(sequence, is_arrived=is_arrived)
        self.alone.discard(sequence)
        self.tried.discard(sequence)
        self.held.discard(sequence)

    def compute_ends(self, sequences: Iterable[int]) -> list[EndedDelivery]:
        """Return the endings that `requeue` would cause now for these Packages in flight."""
        deliveries: dict[int, ChannelDelivery] = {}
        for sequence in sequences:
            if sequence in self._withdrawn and sequence in self._queue:
                deliveries[sequence] = ChannelDelivery(
                    Status.CANCELED, self._withdrawn[sequence][1]
                )
            elif sequence in self._queue and self._queue.is_superseded(sequence):
                deliveries[sequence] = REPLACED_DELIVERY
        return [
            EndedDelivery(sequence, self.channel, delivery)
            for sequence, delivery in deliveries.items()
        ]

    def requeue(self, sequence: int, due_time: float) -> EndedDelivery | None:
        """Put back a Package that was not sent, or not completely. The Package waits until
        `due_time`. If the Package was withdrawn or replaced during its transmission, return its
        ending.
        """
        (ended_delivery,) = self.compute_ends([sequence]) or (None,)
        if ended_delivery is not None and ended_delivery.delivery is not REPLACED_DELIVERY:
            self.finish(sequence)
        elif sequence in self._queue:
            # If a newer Package replaces this one, the newer Package gets its place.
            waits = sequence in self.held and not self._queue.is_superseded(sequence)
            self._queue.requeue(sequence, inf if waits else due_time)
            self.tried.add(sequence)
        return ended_delivery

    def get_in_flight(self) -> set[int]:
        return self._queue.get_in_flight()

    def mark_landed(self, sequences: Iterable[int]) -> None:
        """Set the events of those withdrawn Packages in `sequences` that are no longer in flight,
        and wake the tasks that send Packages and end them.
        """
        for sequence in sequences:
            if sequence in self._withdrawn and sequence not in self._queue.get_in_flight():
                self._withdrawn.pop(sequence)[0].set()
        # A Package that expired during its transmission ends now, so `wait_for_expired` must check
        # again.
        self._sooner.set()
        self.wake()

    def end_gathering(self) -> None:
        """Make all Packages that wait to share a message due now, because a transmission is about
        to leave.
        """
        for sequence in self.gathering - self.held:
            self._queue.hasten(sequence)
        self.gathering.clear()

    def hold_back(self, kind: str, sequences: Iterable[int]) -> None:
        """Hold back all later Packages of `kind`, and the Packages in `sequences`. A Package in
        flight is held when its transmission is over.
        """
        self.held_kinds.add(kind)
        for sequence in sequences:
            if sequence in self._queue:
                self.held.add(sequence)
                self._queue.hold_until_hastened(sequence)
        self.wake()

    def release_kind(self, kind: str, sequences: Iterable[int]) -> None:
        """Stop holding back Packages of `kind`, and release the Packages in `sequences`."""
        self.held_kinds.discard(kind)
        released = self.held.intersection(sequences)
        self.held -= released
        self.hasten(*released)

    def try_again(self) -> None:
        """Make all Packages that wait for a retry due now."""
        tried, self.tried = self.tried, set()
        self.hasten(*tried)

    def compute_due_time(self, sequence: int) -> float:
        """Return the time on trio's clock when the Package may leave. Return -inf if it may leave
        now or is in flight.
        """
        if sequence in self._queue.get_in_flight():
            return -inf
        return self._queue.compute_due_time(sequence)


def _get_priority(stored_package: StoredPackage) -> int:
    """Return the priority in the queue: an SOS of the kit's own people goes before an SOS of
    others.
    """
    package = stored_package.package
    if not package.urgent:
        return package.priority
    return SOS_PRIORITY if stored_package.is_of_others else max(package.priority, SOS_PRIORITY) + 1
