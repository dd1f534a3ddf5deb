"""Cancels Packages that have not left the kit: a single Package, all waiting Packages except an
SOS, or an SOS with all its Packages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import trio

from fieldagent.agent.journal import history, incident
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import EndedDelivery
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.ending import Endings
from fieldagent.agent.outbound.standing import PackageState, find_package_state, get_package_state
from fieldagent.package.delivery import ChannelDelivery
from fieldagent.package.package import Channel, Status
from fieldagent.system import waits

END_WAIT_MAX_S = 120.0
"""Longest time in seconds to wait for the end of a transmission in progress."""
CANCELED_BY_CALL_REASON = "by a call"
CANCELED = ChannelDelivery(Status.CANCELED, CANCELED_BY_CALL_REASON)
CANCEL_BATCH = 400
"""Number of Packages that one commit cancels; the commit takes some milliseconds."""


class Cancellation:
    def __init__(
        self,
        journal: Journal,
        queues: Mapping[Channel, ChannelQueue],
        endings: Endings,
        resume_event: trio.Event | None = None,
    ) -> None:
        """`resume_event` is set once all Packages from before the restart are in the queues
        again.
        """
        self._journal = journal
        self._queues = queues
        self._endings = endings
        self._resumed = resume_event

    async def cancel(self, id_: int, channel: Channel | None = None) -> PackageState:
        """Withdraw a Package from `channel`, or from all channels if it is None. Return the
        Package's state.

        A transmission in progress cannot be recalled, so this function waits for its end for
        END_WAIT_MAX_S seconds. If the transmission takes longer, the status is None, and the
        cancellation applies later. Raises UnknownPackage.
        """
        package_state = find_package_state(self._journal, id_)
        if package_state.status is None:
            await self._withdraw([package_state.sequence], channel)
            await self._end_unsent_incident(package_state.sequence)
        return get_package_state(self._journal, package_state.sequence)

    def can_have_left(self, incident_number: int) -> bool:
        """Return True if an item of the incident `incident_number` may be in flight or may have
        arrived.
        """
        of_it = {*incident.list_items(self._journal, incident_number)}
        if any(of_it & queue.get_in_flight() for queue in self._queues.values()):
            return True
        return any(history.can_have_left(self._journal, each) for each in of_it)

    async def call_off(self, incident_number: int) -> list[trio.Event]:
        """End the open incident `incident_number`: withdraw its items that have not left, and stop
        the repeats. Return one event for each item in flight. The event is set when the item's
        result is known.
        """
        if any(each.number == incident_number for each in incident.list_all_open(self._journal)):
            # The commit of a cancellation message ends the incident. Here, the kit has stored no
            # such message, so end the incident separately.
            await self._end(incident_number)
        # The incident is over, so new items cannot join it.
        return await self._withdraw_waiting(
            incident.list_items(self._journal, incident_number), None
        )

    async def _end_unsent_incident(self, sequence: int) -> None:
        """End an incident if all its Packages were cancelled before they left. If other kits or the
        hub may know the incident, it ends only with a cancellation message.
        """
        number = incident.find_incident(self._journal, sequence)
        if number is None:
            return
        for each in incident.list_items(self._journal, number):
            deliveries = get_package_state(self._journal, each).deliveries.values()
            is_waiting_or_delivered = any(
                delivery.status in (None, Status.DELIVERED) for delivery in deliveries
            )
            if is_waiting_or_delivered or history.can_have_left(self._journal, each):
                return
        await self._end(number)

    async def _end(self, number: int) -> None:
        now = self._journal.clock.now()
        await self._journal.commit(lambda db: incident.mark_called_off(db, number, now))

    async def clear(self, channel: Channel | None = None) -> int:
        """Cancel all waiting Packages except an open SOS, which can only be cancelled as a whole.
        Return the number of cancelled Packages.

        Each batch has its own commit, so that an SOS that arrives meanwhile is not delayed.
        """
        await self._wait_until_resumed()
        waiting = {key: None for queue in self._get_queues(channel) for key in queue.list_waiting()}
        for each in incident.list_all_open(self._journal):
            for sequence in incident.list_items(self._journal, each.number):
                waiting.pop(sequence, None)
        sequences = list(waiting)
        # Start with the newest Packages: they are at the ends of the heaps, where entries can be
        # removed without a sweep.
        sequences.reverse()
        for start in range(0, len(sequences), CANCEL_BATCH):
            await self._withdraw_waiting(sequences[start : start + CANCEL_BATCH], channel)
        return len(sequences)

    async def _wait_until_resumed(self) -> None:
        if self._resumed is not None:
            await self._resumed.wait()

    async def _withdraw(self, sequences: list[int], channel: Channel | None) -> None:
        await wait_until_settled(await self._withdraw_waiting(sequences, channel))

    async def _withdraw_waiting(
        self, sequences: list[int], channel: Channel | None
    ) -> list[trio.Event]:
        """Remove the waiting Packages from the queues, and store their ends. Return an event for
        each Package in flight. The event is set when the Package's end is stored.
        """
        await self._wait_until_resumed()
        canceled: list[EndedDelivery] = []
        in_flight: list[trio.Event] = []
        for queue in self._get_queues(channel):
            withdrawn = queue.withdraw(sequences, CANCELED_BY_CALL_REASON)
            canceled += [EndedDelivery(out, queue.channel, CANCELED) for out in withdrawn.removed]
            in_flight += withdrawn.in_flight
        if canceled:
            await self._endings.record(canceled)
        return in_flight

    def _get_queues(self, channel: Channel | None) -> list[ChannelQueue]:
        return [queue for name, queue in self._queues.items() if channel in (None, name)]


async def wait_until_settled(
    in_flight: Iterable[trio.Event], limit_s: float = END_WAIT_MAX_S
) -> None:
    """Wait until all events are set, but not longer than `limit_s` seconds."""
    with waits.move_on_after(limit_s):
        for each in in_flight:
            await each.wait()
