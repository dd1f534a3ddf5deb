"""Cancels Packages that have not left the kit: a single Package, all waiting Packages except an
SOS, or an SOS with all its Packages. Also cancels this kit's own incident, if one of its users
requests this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import trio

from fieldagent.agent.journal import handhelds, history, incident, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import EndedDelivery, StoredPackage
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.ending import Endings
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.package_state import (
    PackageState,
    find_package_state,
    get_package_state,
)
from fieldagent.package.delivery import ChannelDelivery
from fieldagent.package.package import (
    SOS_PRIORITY,
    Channel,
    IncidentState,
    IncidentUpdate,
    Message,
    Package,
    Status,
)
from fieldagent.system import waits
from fieldagent.wire.proof import prove_update

END_WAIT_MAX_S = 120.0
"""Longest time in seconds to wait for the end of a transmission in progress."""
CANCELED_BY_CALL_REASON = "by a call"
CANCELED = ChannelDelivery(Status.CANCELED, CANCELED_BY_CALL_REASON)
CANCEL_BATCH = 400
"""Maximum number of Packages that one commit cancels. The commit takes some milliseconds."""


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
        """Return True if an item of the incident `incident_number` is in flight, was sent, or may
        have been sent.
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
        """Cancel all waiting Packages except an open SOS, which can only be cancelled completely.
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


ANSWER_DELAY_MAX_S = 15.0
"""Longest time in seconds for which the response to a cancellation waits for the end of a session,
or for an unplugged modem. After 20 s, the page reports that the agent does not respond."""


def may_include_user_messages(journal: Journal, incident_number: int) -> bool:
    """Return True if a person without a handheld may have sent a message in this kit's incident
    `incident_number`. Then people with handhelds are not allowed to cancel the incident alone.
    """
    for package in outbound.read_packages(
        journal, incident.list_items(journal, incident_number)
    ).values():
        if not isinstance(package, StoredPackage):
            return True
        by_handheld = handhelds.is_idempotency_key(package.idempotency_key or "")
        if isinstance(package.package.item, Message) and not by_handheld:
            return True
    return False


async def call_off(
    journal: Journal,
    cancellation: Cancellation,
    intake: Intake,
    proof_keys: Sequence[bytes],
    incident_number: int,
    *,
    limit_s: float = ANSWER_DELAY_MAX_S,
) -> bool:
    """End the open incident `incident_number`, and notify its possible receivers over the same
    channels. Return True if someone may have received the incident. If all items in flight end
    within `limit_s` seconds and none has left, withdraw the cancellation message. Raises the
    journal's errors.
    """
    update = IncidentUpdate(incident_number, IncidentState.CALLED_OFF)
    package = Package(
        prove_update(update, proof_keys[0]) if proof_keys else update, priority=SOS_PRIORITY - 1
    )
    package_state = None
    if cancellation.can_have_left(incident_number):
        # One commit stores the message and ends the incident. With two commits, a power failure
        # between them could leave the hub's alarm on although the kit no longer repeats the SOS.
        package_state = await intake.accept(package)
    in_flight = await cancellation.call_off(incident_number)
    if package_state is None:
        if not can_be_known(journal, incident_number):
            return False
        # A modem has started to send an item since the check above, so the hub may learn of the
        # incident.
        package_state = await intake.accept(package)
    await wait_until_settled(in_flight, limit_s)
    if can_be_known(journal, incident_number):
        return True
    return (await cancellation.cancel(package_state.id)).status is not Status.CANCELED


def can_be_known(journal: Journal, incident_number: int) -> bool:
    """Return True if someone may have received an item of this kit's incident `incident_number`."""
    return any(
        delivery.status in (None, Status.DELIVERED)
        for sequence in incident.list_items(journal, incident_number)
        for delivery in get_package_state(journal, sequence).deliveries.values()
    )
