"""Puts the Packages that waited when the program ended back into the queues, the most urgent first.

A long queue must not delay the start of the agent or a request. So only the first batch is put back
before the start. The rest follows in small batches while other tasks run. `resume_event` is set
when all Packages are back. Tasks that must know every waiting Package wait for this event.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

import trio

from fieldagent.agent.journal import listing, losses, outbound
from fieldagent.agent.journal.journal import Journal, Operation, combine_operations
from fieldagent.agent.journal.records import (
    DAMAGED_DELIVERY,
    DamagedPackage,
    EndedDelivery,
    StoredPackage,
)
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.ending import Endings
from fieldagent.agent.outbound.intake import Intake
from fieldagent.package.package import Channel

log = logging.getLogger(__name__)

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
