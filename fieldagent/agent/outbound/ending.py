"""Stores the ends of Packages on their channels, and wakes the callers that wait for those ends.

The queues and drivers decide an ending and pass it to `record`. One commit stores the ending, its
consequences on other channels, and the caller's own operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import trio

from fieldagent.agent.journal import on_air, outbound
from fieldagent.agent.journal.journal import Journal, Operation, combine_operations
from fieldagent.agent.journal.records import DamagedPackage, EndedDelivery, StoredPackage
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.item_identity import make_entry
from fieldagent.agent.outbound.package_state import PackageState, get_package_state
from fieldagent.package.delivery import ChannelDelivery, FanOut
from fieldagent.package.package import Channel, Package, Status
from fieldagent.system.wording import sentence
from fieldagent.wire.envelope import Ack, compute_item_digest


class AgentStopping(Exception):
    """The agent stops before the Package has ended; the Package continues after the next start."""


class Acknowledger(Protocol):
    def acknowledge(self, sequence: int, ack: Ack) -> None:
        """Send a neighbour the acknowledgement of its item with this number."""


class Endings:
    """Recorder of endings. `queues` are the queues of the configured channels; `clock` is elapsed
    time.

    When the hub has an item that we relayed for another kit, that kit is notified on the air
    through `neighbours`. If `ends_when_heard`, a fan-out of `first` or `cheapest` ends when another
    kit has received the item, even if the hub never gets it.
    """

    def __init__(
        self,
        journal: Journal,
        queues: Mapping[Channel, ChannelQueue],
        *,
        clock: Callable[[], float],
        fan_out: FanOut = FanOut.EVERY,
        ends_when_heard: bool = False,
        neighbours: Acknowledger | None = None,
    ) -> None:
        self.clock = clock
        self._journal = journal
        self._queues = queues
        self._fan_out = fan_out
        self._heard_ends = ends_when_heard
        self._neighbours = neighbours
        self._waiters: dict[int, trio.Event] = {}
        self._stopped = False

    def get_fan_out(self, package: Package, *, is_relayed: bool) -> FanOut:
        """Return the fan-out of a Package: EVERY if the Package is urgent, CHEAPEST if it is from a
        neighbour or has a deadline, otherwise the configured fan-out.
        """
        if package.urgent:
            return FanOut.EVERY
        return FanOut.CHEAPEST if is_relayed or package.by is not None else self._fan_out

    async def record(
        self, endings: Sequence[EndedDelivery], extra_operation: Operation[None] | None = None
    ) -> None:
        """Store the ends of these channel deliveries. They are on disk when this function returns.
        `extra_operation` runs in the same commit.
        """
        packages = self._read_affected_packages(endings)
        # The commit may wait for disk space. Remove the Packages from the other queues first, so
        # that no channel sends them meanwhile. If the commit fails, the Packages return to the
        # queues at the next start.
        taken_out = [
            each for ending in endings for each in self._cancel_superfluous(ending, packages)
        ]
        endings = [*endings, *taken_out]
        note_ends = outbound.record_ends(endings, self.clock())
        await self._journal.persist(
            note_ends if extra_operation is None else combine_operations(extra_operation, note_ends)
        )
        for each in endings:
            package = packages.get(each.sequence)
            if package is not None and each.delivery.status is Status.DELIVERED:
                self._report_to_neighbour(package, by_hub=each.channel is Channel.CELLULAR)
        self.wake_callers(endings)

    def wake_callers(self, endings: Sequence[EndedDelivery]) -> None:
        """Wake the callers that wait for the ends of these Packages. The ends are already on
        disk.
        """
        for sequence in {each.sequence for each in endings}:
            self._wake_caller(sequence)

    def _read_affected_packages(self, endings: Sequence[EndedDelivery]) -> dict[int, StoredPackage]:
        """Return the Packages whose endings affect other channels or neighbours, by sequence.
        Damaged Packages are left out.
        """
        packages: dict[int, StoredPackage] = {}
        for each in endings:
            if not self._is_end_relevant(each):
                continue
            # The end of a damaged Package has no effects on other channels.
            with suppress(DamagedPackage):
                package = outbound.read_kept_package(self._journal, each.sequence)
                if package is not None:
                    packages[each.sequence] = package
        return packages

    def _is_end_relevant(self, ending: EndedDelivery) -> bool:
        """Return True if this ending may affect the Package on other channels, or must be reported
        to a neighbour.
        """
        if ending.delivery.status not in (Status.DELIVERED, Status.ERROR):
            return False
        if self._fan_out is not FanOut.EVERY or self._neighbours is not None:
            return True
        others = (queue for name, queue in self._queues.items() if name is not ending.channel)
        return any(ending.sequence in queue for queue in others)

    def _list_dearer(self, channel: Channel) -> list[ChannelQueue]:
        """Return the queues of the channels that are more expensive than `channel`. Return an empty
        list unless the hub itself confirms the items on `channel`, as on Cellular.
        """
        if channel is not Channel.CELLULAR or Channel.SATELLITE not in self._queues:
            return []
        return [self._queues[Channel.SATELLITE]]

    def _cancel_superfluous(
        self, ending: EndedDelivery, stored_package: Mapping[int, StoredPackage]
    ) -> list[EndedDelivery]:
        """Remove the Package from the other channels that no longer need to send it. Return its
        endings on these channels. If the Package failed and its fan-out is CHEAPEST, the other
        channels send it immediately.
        """
        package = stored_package.get(ending.sequence)
        if package is None or package.package.urgent:
            return []
        fan_out = self.get_fan_out(package.package, is_relayed=package.origin != 0)
        others = [queue for name, queue in self._queues.items() if name is not ending.channel]
        if ending.delivery.status is Status.ERROR and fan_out is FanOut.CHEAPEST:
            for queue in others:
                if ending.sequence in queue:
                    queue.hasten(ending.sequence)
        if ending.delivery.status is not Status.DELIVERED:
            return []
        if fan_out is FanOut.EVERY:
            others = self._list_dearer(ending.channel)
        elif ending.channel is Channel.RADIO and not self._is_ended_as_heard(ending.sequence):
            return []
        return _withdraw_from(others, ending.sequence, f"delivered over {ending.channel}")

    def _is_ended_as_heard(self, sequence: int) -> bool:
        """Return True if channels to the hub stop sending the Package as soon as another kit has
        received it.
        """
        return self._heard_ends or on_air.is_relayed(self._journal, sequence)

    async def record_arrival_at_hub(self, sequence: int, *, is_proved: bool) -> None:
        """Record that the hub has the item. `is_proved` is True if the hub itself confirmed the
        item, False if the relaying kit reported it. Withdraw the item from channels to the hub that
        have not sent it, unless it is urgent. If the fan-out is `every`, withdraw the item only
        from satellite, and only if `is_proved`. If the item is a neighbour's and `is_proved`,
        notify the neighbour.
        """
        queues = [queue for name, queue in self._queues.items() if name is not Channel.RADIO]
        if not (is_proved and self._neighbours) and not any(sequence in queue for queue in queues):
            return
        try:
            package = outbound.read_kept_package(self._journal, sequence)
        except DamagedPackage:
            return
        if package is None:
            return
        if is_proved:
            self._report_to_neighbour(package, by_hub=True)
        if package.package.urgent:
            return
        fan_out = self.get_fan_out(package.package, is_relayed=package.origin != 0)
        if fan_out is FanOut.EVERY:
            queues = self._list_dearer(Channel.CELLULAR) if is_proved else []
        if withdrawn := _withdraw_from(queues, sequence, "the hub has it"):
            await self.record(withdrawn)

    def _report_to_neighbour(self, package: StoredPackage, *, by_hub: bool) -> None:
        """Report to the kit that sent the item that the hub has it. If `by_hub` is False, report
        that a satellite gateway has it.
        """
        if package.origin and self._neighbours is not None:
            digest = compute_item_digest(make_entry(package))
            ack = Ack(package.origin, by_hub=by_hub, digest=digest, is_at_gateway=not by_hub)
            self._neighbours.acknowledge(package.origin_sequence, ack)
            self._queues[Channel.RADIO].wake()

    def _wake_caller(self, sequence: int) -> None:
        waiter = self._waiters.get(sequence)
        if waiter is not None and get_package_state(self._journal, sequence).status is not None:
            waiter.set()

    async def wait_for_outcome(self, sequence: int) -> PackageState:
        """Wait until the Package has a terminal status, and return its state. Raises AgentStopping
        after a call of `stop`.
        """
        while (package_state := get_package_state(self._journal, sequence)).status is None:
            if self._stopped:
                raise AgentStopping(_describe_stop(package_state.id, self._journal.not_on_disk))
            waiter = self._waiters.setdefault(sequence, trio.Event())
            await waiter.wait()
            self._waiters.pop(sequence, None)
        return package_state

    def stop(self) -> None:
        """Wake all callers of `wait_for_outcome`, which then raises AgentStopping."""
        self._stopped = True
        for waiter in self._waiters.values():
            waiter.set()


def _withdraw_from(
    queues: Iterable[ChannelQueue], sequence: int, reason: str
) -> list[EndedDelivery]:
    """Remove the Package from these queues. If the Package is in flight, its transmission continues
    but is not repeated.
    """
    return [
        EndedDelivery(out, queue.channel, ChannelDelivery(Status.CANCELED, reason))
        for queue in queues
        for out in queue.withdraw([sequence], reason, is_arrived=True).removed
    ]


def _describe_stop(number: int, not_on_disk: str) -> str:
    if not_on_disk:
        return sentence(
            "the agent is stopping, and {why}: Package {id} is lost if it is only in memory;"
            " post it again when the agent has started",
            why=not_on_disk,
            id=number,
        )
    return sentence(
        "the agent is stopping; Package {id} is kept, and continues at the next start", id=number
    )
