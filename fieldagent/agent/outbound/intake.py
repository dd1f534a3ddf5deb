"""Accepts Packages: each Package gets an id and a number, is committed to disk, and enters the
queues.

A Package is accepted when it is on disk. The functions of this module return after the commit.

After a start, the Packages that waited when the program ended return to the queues, the most urgent
first. A long queue must not delay the start of the agent or a request. So only the first batch is
put back before the start. The rest follows in small batches while other tasks run. `resume_event`
is set when all Packages are back. Tasks that must know every waiting Package wait for this event.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property

import trio

from fieldagent.agent.journal import directory, history, incident, listing, losses, outbound
from fieldagent.agent.journal.high_water import CHOSEN_IDS
from fieldagent.agent.journal.journal import Journal, Operation, combine_operations
from fieldagent.agent.journal.records import (
    DAMAGED_DELIVERY,
    DamagedPackage,
    EndedDelivery,
    PackageFacts,
    StoredPackage,
)
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.ending import Endings
from fieldagent.agent.outbound.head_start import GATHERING_REASON, Begin, compute_head_starts
from fieldagent.agent.outbound.package_state import PackageState, get_package_state
from fieldagent.package.delivery import (
    ChannelDelivery,
    FanOut,
    get_terminal_status,
    make_deliveries,
)
from fieldagent.package.forecast import PACKAGES_READ_MAX, Steps, compute_steps
from fieldagent.package.package import (
    Channel,
    CheckIn,
    IncidentState,
    IncidentUpdate,
    Package,
    Status,
)
from fieldagent.package.writing import digest, make_canonical
from fieldagent.system.wording import format_duration, sentence

log = logging.getLogger(__name__)


class Conflict(Exception):
    """Error: the id belongs to another Package that still waits. The message contains the id."""


class KeyReused(Conflict):
    """The Idempotency-Key was already used with another body."""


Claim = int | str | tuple[int]
"""Value that no other Package may use while a Package with it is being stored: the id (int), the
Idempotency-Key (str) or the collapseKey (tuple)."""


class Intake:
    """Accepts Packages. `queues` are the queues of the configured channels.

    `time_to_live` is the default life of a Package in seconds. If the fan-out is `cheapest`, a
    channel starts at most `head_start` seconds before the next more expensive one. `resume_event`
    is set once all earlier Packages are in the queues again.
    """

    def __init__(
        self,
        journal: Journal,
        queues: Mapping[Channel, ChannelQueue],
        endings: Endings,
        *,
        time_to_live: int,
        head_start: float = 0.0,
        resume_event: trio.Event | None = None,
    ) -> None:
        self._journal = journal
        self._queues = queues
        self._endings = endings
        self._time_to_live = time_to_live
        self._head_start = head_start
        self._resumed = resume_event
        self._next_id = outbound.compute_next_id(journal)
        self._accepting: dict[Claim, trio.Event] = {}

    async def accept(
        self,
        package: Package,
        idempotency_key: str | None = None,
        *,
        incident_number: int | None = None,
        handle: str = "",
    ) -> PackageState:
        """Store and queue a Package, or return the state of the same Package that the caller posted
        before.

        If `incident_number` is not None, an SOS joins that incident and opens no other. If `handle`
        is not empty, the sender is an unauthenticated handheld, and its SOS joins or opens the
        handheld's own incident. Raises NoSuchPerson, Conflict, IncidentOver, and the journal's
        errors.
        """
        claims: list[Claim] = [c for c in (package.id, idempotency_key) if c is not None]
        if package.collapse_key is not None:
            claims.append((package.collapse_key,))
            if self._resumed is not None and not package.sos:
                # The older Packages must be in the queues, because the new Package takes their
                # place.
                await self._resumed.wait()
        if not claims:
            return await self._store(package, None, incident_number, handle)
        # If two Packages with the same id or collapseKey are posted together, the second one waits
        # until the first is on disk.
        while busy := [self._accepting[claim] for claim in claims if claim in self._accepting]:
            await busy[0].wait()
        committed = trio.Event()
        self._accepting |= dict.fromkeys(claims, committed)
        try:
            earlier = self._find_earlier(package, idempotency_key)
            if earlier is not None:
                return get_package_state(self._journal, earlier.sequence)
            return await self._store(package, idempotency_key, incident_number, handle)
        finally:
            for claim in claims:
                del self._accepting[claim]
            committed.set()

    def _find_earlier(self, package: Package, key: str | None) -> PackageFacts | None:
        if key is not None and (earlier := outbound.find_by_idempotency_key(self._journal, key)):
            if earlier.digest != digest(make_canonical(package)):
                raise KeyReused(
                    sentence("Idempotency-Key {key} was used for another body", key=repr(key))
                )
            return earlier
        if package.id is None:
            return None
        earlier = outbound.find_by_id(self._journal, package.id)
        if earlier is None or earlier.status is not None:
            return None
        if earlier.digest != digest(make_canonical(package)):
            raise Conflict(
                sentence(
                    "Package {id} is pending with another body; cancel it, wait for it, or"
                    " leave out the id",
                    id=package.id,
                )
            )
        return earlier

    async def _store(
        self, package: Package, key: str | None, incident_number: int | None, handle: str
    ) -> PackageState:
        if not package.urgent:
            directory.require_known(self._journal, package.to)
            self._journal.require_room()
        now = self._endings.clock()
        life = self._compute_life(package)
        head_starts = self.compute_begins(package)
        deliveries = self._make_deliveries(package, head_starts)
        status = get_terminal_status(deliveries.values())
        id_ = self._choose_id(package)
        dated = self._journal.clock.date(now)
        stamped = self._replace_names(package.with_time(dated))
        expires = None if life is None else now + life
        body = make_canonical(package)
        identity = digest(body)
        new = outbound.NewPackage(
            body if stamped is package else make_canonical(stamped),
            identity,
            accepted=now,
            expires=expires,
            dated_at=dated,
            deliveries=deliveries,
            priority=package.priority,
            id=id_,
            idempotency_key=key,
            undated=not self._journal.clock.source(),
            status=status,
            is_sos=package.sos,
            joins=incident_number,
            unauthenticated_handle=handle,
            calls_off=_find_called_off(package),
            check_in=package.item if isinstance(package.item, CheckIn) else None,
        )
        with self._wait_for_id(id_), self._end_replaced(package, id_, deliveries) as replaced:
            journal = self._journal
            commit = journal.commit_urgent if package.urgent else journal.commit_on_disk
            operation = _store_with_reasons(outbound.store_new_package(new), head_starts, now)
            sequence = await commit(outbound.store_with_ends(operation, replaced, now))
            accepted = StoredPackage(
                *(sequence, id_, stamped, identity, key, now, expires, None, None),
                dated=dated,
                is_unproved=bool(handle),
            )
            late = [
                each for each in self.enqueue(accepted, deliveries, life) if each not in replaced
            ]
        self._endings.wake_callers(replaced)
        if late:
            # A replaced Package was in flight when the commit began. If its transmission ended
            # during the commit, store its end now.
            await self._endings.record(late)
        return PackageState(id_, sequence, status, deliveries, dated)

    @contextmanager
    def _wait_for_id(self, id_: int) -> Iterator[None]:
        """Inside the block, other callers that choose `id_` wait until this Package is on disk."""
        if id_ in self._accepting:
            # The caller chose this id itself, so `accept` has already claimed the id.
            yield
            return
        committed = self._accepting[id_] = trio.Event()
        try:
            yield
        finally:
            del self._accepting[id_]
            committed.set()

    def _replace_names(self, package: Package) -> Package:
        """Replace names in the Package by numbers, because the name may belong to another addressee
        by the time the Package is encoded again.
        """
        addressee = directory.resolve(self._journal, package.to)
        author = directory.resolve(self._journal, package.author)
        if (addressee, author) == (package.to, package.author):
            return package
        return replace(package, to=addressee, author=author)

    @contextmanager
    def _end_replaced(
        self, package: Package, id_: int, deliveries: Mapping[Channel, ChannelDelivery]
    ) -> Iterator[list[EndedDelivery]]:
        """Yield the endings of the Packages that the new Package replaces. Inside the block, the
        replaced Packages cannot leave. After the block, they can leave only if the block raised an
        exception.
        """
        if package.collapse_key is None:
            yield []
            return
        delivery = _make_replaced_delivery(id_)
        with ExitStack() as stack:
            yield [
                EndedDelivery(older, channel, delivery)
                for channel in deliveries.keys() & self._queues.keys()
                for older in stack.enter_context(self._queues[channel].hold_replaced(package))
            ]

    def _choose_id(self, package: Package) -> int:
        """Return the id that the caller chose, or the next free id."""
        if package.id is None:
            id_, self._next_id = self._next_id, self._next_id + 1
            return id_
        if self._next_id <= package.id < CHOSEN_IDS:
            self._next_id = package.id + 1
        return package.id

    def _make_deliveries(
        self, package: Package, starts: Mapping[Channel, Begin]
    ) -> Mapping[Channel, ChannelDelivery]:
        """Return the state of a newly accepted Package on each channel, and the time when the
        channel may start.
        """
        deliveries = make_deliveries(package.channels, self._configured)
        if not any(each.after for each in starts.values()):
            return deliveries
        return {
            name: replace(delivery, begins_after=starts[name].after) if name in starts else delivery
            for name, delivery in deliveries.items()
        }

    def compute_begins(self, package: Package) -> Mapping[Channel, Begin]:
        """Return, for each channel, the seconds until a newly accepted Package may start there, and
        the reason for the wait.
        """
        deliveries = make_deliveries(package.channels, self._configured)
        fan_out = self._endings.get_fan_out(package, is_relayed=False)
        life = self._compute_life(package)
        if package.by is not None and life is not None:
            # The Package must not expire before a channel starts, so limit the deadline to its
            # lifetime.
            package = replace(package, by=min(package.by, life))
        shown_starts = (
            self._list_past_deliveries(deliveries)
            if fan_out is FanOut.CHEAPEST and len(deliveries) > 1
            else {}
        )
        return compute_head_starts(package, deliveries, fan_out, self._head_start, shown_starts)

    def _list_past_deliveries(
        self, deliveries: Mapping[Channel, ChannelDelivery]
    ) -> dict[Channel, Steps]:
        """Return, for each channel with enough past deliveries, the share of Packages that were
        delivered within each number of seconds.
        """
        clock = self._journal.clock
        now = clock.date(clock.now())
        past = {
            each: listing.list_past_deliveries(self._journal, each, PACKAGES_READ_MAX)
            for each in deliveries
        }
        by_channel = {each: compute_steps(its, now) for each, its in past.items()}
        return {each: steps for each, steps in by_channel.items() if steps is not None}

    def _compute_life(self, package: Package) -> int | None:
        """Return the life of the Package in seconds; None means forever."""
        return None if package.urgent else package.time_to_live or self._time_to_live

    @cached_property
    def _configured(self) -> frozenset[Channel]:
        """Configured channels. They never change after the first Package was accepted."""
        return frozenset(self._queues)

    def enqueue(
        self,
        stored_package: StoredPackage,
        deliveries: Mapping[Channel, ChannelDelivery],
        life: float | None,
        passed_s: float = 0.0,
    ) -> list[EndedDelivery]:
        """Put a Package into the queue of each channel on which it still waits. Return the endings
        of the Packages that it replaces. `passed_s` is the number of seconds since its acceptance.
        """
        delivery = _make_replaced_delivery(stored_package.id)
        return [
            EndedDelivery(older, channel, delivery)
            for channel, starts_after in self._compute_begins(stored_package, deliveries).items()
            if channel in self._queues
            for older in self._queues[channel].add(stored_package, life, starts_after - passed_s)
        ]

    def _compute_begins(
        self, stored_package: StoredPackage, deliveries: Mapping[Channel, ChannelDelivery]
    ) -> dict[Channel, float]:
        """Return the seconds until each waiting channel may start."""
        if stored_package.origin:
            fan_out = self._endings.get_fan_out(stored_package.package, is_relayed=True)
            head_starts = compute_head_starts(
                stored_package.package, deliveries, fan_out, self._head_start, {}
            )
            return {name: head_start.after for name, head_start in head_starts.items()}
        return {
            name: delivery.begins_after
            for name, delivery in deliveries.items()
            if delivery.status is None
        }

    def queue_relayed(self, stored_package: StoredPackage) -> None:
        """Queue a neighbour's Package, which is on disk. The Package has no collapseKey, so it
        replaces no other Package.
        """
        life = None
        if stored_package.expires is not None:
            life = max(0.0, stored_package.expires - self._endings.clock())
        deliveries = outbound.read_deliveries(self._journal, stored_package.sequence)
        self.enqueue(stored_package, deliveries, life)


def _store_with_reasons(
    store: Operation[int], starts: Mapping[Channel, Begin], now: float
) -> Operation[int]:
    """Return an operation that also stores the reasons for a delayed start. The reason "it gathers"
    is left out, because the queue shows it, and a track would store it for each position.
    """
    waits = {
        name: head_start
        for name, head_start in starts.items()
        if head_start.reason not in ("", GATHERING_REASON)
    }
    if not waits:
        return store

    def store_both(db: sqlite3.Connection) -> int:
        sequence = store(db)
        for channel, head_start in waits.items():
            detail = f"{format_duration(head_start.after)}: {head_start.reason}"
            history.record_event(db, [sequence], channel, history.WAITS_EVENT, detail, now)
        return sequence

    return store_both


def _find_called_off(package: Package) -> int | None:
    """Return the number of this kit's incident that the Package cancels. Return None if it cancels
    none.
    """
    item = package.item
    if not isinstance(item, IncidentUpdate) or item.station != incident.OWN_STATION:
        return None
    return item.incident if item.state is IncidentState.CALLED_OFF else None


def _make_replaced_delivery(id_: int) -> ChannelDelivery:
    return ChannelDelivery(Status.COLLAPSED, f"replaced by Package {id_}")


RESUME_BATCH = 10
"""Number of Packages in one batch. A batch takes one or two milliseconds on a PC, and about ten on
a small gateway."""


class Resume:
    def __init__(
        self,
        journal: Journal,
        queues: Mapping[Channel, ChannelQueue],
        intake: Intake,
        endings: Endings,
        resume_event: trio.Event,
    ) -> None:
        self._journal = journal
        self._queues = queues
        self._intake = intake
        self._endings = endings
        self._resumed = resume_event
        self._place: outbound.Place | None = outbound.FIRST_PLACE
        self._last = outbound.compute_next_sequence(journal) - 1
        """Sequence of the last Package to put back. `Intake` queues later Packages."""
        self._ended_deliveries: list[EndedDelivery] = []
        self._notes: list[Operation[None]] = []

    def begin(self) -> None:
        """Put back the first batch, before any task runs.

        If one Package replaces another, end the replaced Package, because an earlier version of the
        agent may have kept both.
        """
        # Begin with the Packages of a transmission in progress, because its result may be known at
        # once.
        self._requeue_packages(
            segment.sequence
            for queue in self._queues.values()
            for segment in queue.in_flight.get(0, ())
        )
        self._requeue_batch()
        count = sum(len(queue) for queue in self._queues.values())
        more_text = "" if self._place is None else ", and more"
        if count:
            log.info("%d%s that waited continue", count, more_text)
        if self._ended_deliveries:
            note_ends = outbound.record_ends(self._ended_deliveries, self._endings.clock())
            self._journal.commit_at_start(combine_operations(note_ends, *self._notes))
            self._ended_deliveries, self._notes = [], []
        if self._place is None:
            self._resumed.set()

    async def run(self) -> None:
        """Put the remaining Packages back in batches, until all are in the queues."""
        while not self._resumed.is_set():
            await trio.lowlevel.checkpoint()
            # First store the ends that could not be stored before.
            if not self._ended_deliveries and self._place is not None:
                self._requeue_batch()
            if self._ended_deliveries:
                await self._endings.record(self._ended_deliveries, combine_operations(*self._notes))
                self._ended_deliveries, self._notes = [], []
            if self._place is None:
                self._resumed.set()

    async def count_waiting(self, channels: Collection[Channel]) -> int:
        """Return the number of Packages that wait on any of these channels. Until all Packages are
        back in the queues, the journal counts them.
        """
        if not self._resumed.is_set():
            return await listing.count_waiting(self._journal, channels)
        queues = [self._queues[channel] for channel in channels]
        if len(queues) == 1:
            return len(queues[0])
        return len(set[int]().union(*(queue.list_waiting() for queue in queues)))

    def _requeue_batch(self) -> None:
        assert self._place is not None
        sequences, self._place = outbound.list_next_waiting(
            self._journal, self._place, self._last, RESUME_BATCH
        )
        self._requeue_packages(sequences)

    def _requeue_packages(self, sequences: Iterable[int]) -> None:
        for sequence in sequences:
            if any(sequence in queue for queue in self._queues.values()):
                continue
            try:
                accepted = outbound.read_kept_package(self._journal, sequence)
            except DamagedPackage as damaged:
                self._end_damaged_package(damaged)
            else:
                if accepted is not None:
                    self._requeue(accepted)

    def _requeue(self, stored_package: StoredPackage) -> None:
        now = self._endings.clock()
        life = None
        if stored_package.expires is not None:
            # If a damaged journal has lost the elapsed time, `expires - now` may be too long, so
            # limit it to the planned lifetime.
            life = stored_package.expires - stored_package.accepted
            life = min(life, max(0.0, stored_package.expires - now))
        deliveries = outbound.read_deliveries(self._journal, stored_package.sequence)
        age = max(0.0, now - stored_package.accepted)
        self._ended_deliveries += self._intake.enqueue(stored_package, deliveries, life, age)

    def _end_damaged_package(self, error: DamagedPackage) -> None:
        log.error("%s: it ends as Error and stays in the list; post it again", error)
        sequence = error.sequence
        deliveries = outbound.read_deliveries(self._journal, sequence)
        self._ended_deliveries += [
            EndedDelivery(sequence, channel, DAMAGED_DELIVERY)
            for channel, delivery in deliveries.items()
            if delivery.status is None
        ]
        package = outbound.find_by_sequence(self._journal, sequence)
        id_ = None if package is None else package.id
        self._notes.append(losses.record_damage(sequence, id_, self._endings.clock()))
