"""Runs the core of an agent with a separate journal. The test acts as the driver of its
channels.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.agent.assembly import HubChannelOptions, assemble_hub_channel, make_channel_queue
from fieldagent.agent.channels.contract import ChannelLink, Reception, Transmission
from fieldagent.agent.inbound.incident_news import IncidentNews
from fieldagent.agent.inbound.reception import Inbox, ReceivedMessage
from fieldagent.agent.journal import history, inbound, incident, outbound
from fieldagent.agent.journal.history import Line
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import StorageReceipt
from fieldagent.agent.outbound.budget import Budget
from fieldagent.agent.outbound.cancel import Cancellation
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.cost import Cost, compute_costs
from fieldagent.agent.outbound.ending import Endings
from fieldagent.agent.outbound.intake import Intake, Resume
from fieldagent.agent.outbound.item_identity import make_entry
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.agent.outbound.package_state import (
    PackageState,
    find_package_state,
    get_package_state,
)
from fieldagent.agent.outbound.packing import Packing
from fieldagent.agent.outbound.piggyback import HubPiggyback
from fieldagent.package.delivery import FanOut
from fieldagent.package.package import Channel, Package, Status
from fieldagent.package.payload import Identity
from fieldagent.package.reading import read_package
from fieldagent.system.elapsed_time import MachineClocks
from fieldagent.wire.envelope import (
    Entry,
    compute_fragments_digest,
    compute_item_digest,
    decode,
    encode,
)
from fieldagent.wire.fragments import cut_into_fragments
from fieldagent.wire.outcome import Outcome
from tests.processes import PATIENCE
from tests.running import running

START = 1_790_000_000.0
HEAD_START = 120.0
RATES = [
    pytest.param(0.0, id="time-stands-still"),
    pytest.param(0.05, id="time-passes", marks=pytest.mark.full),
]
"""Seconds of virtual time per second in which code runs. With 0, no test sees a moment that has
just passed. A busy machine runs code ten times slower, so a rate near 1 would measure its load."""


def fail_after(seconds: float) -> AbstractContextManager[trio.CancelScope]:
    """Limit the time like trio. If time passes while code runs, add the time that a busy machine
    may need. The exact limit is tested with a rate of 0.
    """
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, trio.testing.MockClock)
    return trio.fail_after(seconds + PATIENCE * clock.rate)


class TrustedClocks(MachineClocks):
    """Clocks that trust the machine's clock in any case."""

    def _ask(self) -> str:
        return "network"


@dataclass
class Core:
    """An agent's parts with a separate journal, and helpers for tests."""

    journal: Journal
    inbox: Inbox
    queues: dict[Channel, ChannelQueue]
    endings: Endings
    intake: Intake
    outboxes: dict[Channel, ChannelOutbox]
    receptions: dict[Channel, Reception]

    @property
    def cancellation(self) -> Cancellation:
        return Cancellation(self.journal, self.queues, self.endings)

    def standing(self, id_: int) -> PackageState:
        return find_package_state(self.journal, id_)

    def sequence(self, id_: int = 1) -> int:
        """Return the sequence number on the air. A journal starts with an arbitrary number."""
        return self.standing(id_).sequence

    def digest(self, sequence: int) -> bytes:
        """Return the digest of the item with this number, as a confirmation contains it."""
        return compute_item_digest(self._entry(sequence))

    def digest_of_fragments(self, sequence: int, count: int, arrived: Iterable[int]) -> bytes:
        """Return the digest of the arrived fragments of the item, which was cut into `count`."""
        parts = cut_into_fragments(encode([self._entry(sequence)]), count)
        return compute_fragments_digest(parts[index].payload for index in sorted(arrived))

    def _entry(self, sequence: int) -> Entry:
        known = outbound.read_kept_package(self.journal, sequence)
        assert known is not None
        return make_entry(known)

    def declared(self) -> list[PackageState]:
        """Return the Packages of the open incident."""
        open_incident = incident.find_open(self.journal)
        sequences = (
            [] if open_incident is None else incident.list_items(self.journal, open_incident.number)
        )
        return [get_package_state(self.journal, each) for each in sequences]

    def status(self, id_: int) -> Status | None:
        return self.standing(id_).status

    def receipts(self, id_: int) -> list[StorageReceipt]:
        return outbound.list_receipts(self.journal, self.standing(id_).sequence)

    def history(self, id_: int) -> list[Line]:
        known = outbound.find_by_id(self.journal, id_)
        assert known is not None
        return history.list_lines(self.journal, known, self.receipts(id_))

    def cost(self, package: Package, channel: Channel) -> Cost:
        return compute_costs(package, self.outboxes, self.endings.clock())[channel]


@dataclass
class Kit(Core):
    """One run of an agent's core. Its wall clock is the virtual time."""

    outbox: ChannelOutbox
    reception: Reception
    nursery: trio.Nursery

    async def post(self, key: str | None = None, **document: Any) -> int:
        """Post a Package, by default a message, and return its id."""
        if not {"message", "data", "location", "incident"} & document.keys():
            document["message"] = {"content": "hello"}
        return (await self.intake.accept(read_package(document), key)).id

    def load(self, capacity: int = 340) -> Transmission:
        transmission = self.outbox.load(capacity)
        assert transmission is not None
        return transmission

    async def send(
        self, outcome: Outcome = Outcome.SENT, channel: Channel | None = None, **how: Any
    ) -> list[Entry]:
        """Simulate one transmission of the driver with this outcome, and return the transmitted
        entries.
        """
        outbox = self.outbox if channel is None else self.outboxes[channel]
        transmission = outbox.load(340)
        assert transmission is not None
        await outbox.record_intent(transmission, modem="300", at_modem=1)
        await outbox.settle(transmission, outcome, **how)
        return list(decode(transmission.body).entries)

    async def hear(self, body: bytes, *, tagged: bool) -> None:
        """Receive a message over satellite. If `tagged` is False, another kit has relayed it, and
        its sender is not authenticated.
        """
        if tagged:
            await self.reception.receive(body)
            return
        envelope = decode(body)
        taken = ReceivedMessage(self.journal.clock.now())

        def store(db: sqlite3.Connection) -> None:
            for each in envelope.entries:
                self.inbox.store_entry(db, -5, each, taken)

        await self.journal.persist(store)

    async def note_relayed(self, number: int) -> None:
        """Note that a neighbour reports the delivery of a Package to the hub."""
        at = self.journal.clock.now()
        await self.journal.persist(
            lambda db: history.record_event(
                db, [number], Channel.RADIO, "relayed", "station 5 did", at
            )
        )

    def reason(self, id_: int) -> str:
        return self.standing(id_).deliveries[self.outbox.channel].reason


@asynccontextmanager
async def kit(
    path: Path,
    channel: Channel = Channel.SATELLITE,
    *,
    keys: Sequence[bytes] = (),
    also: Sequence[Channel] = (),
    fan_out: FanOut = FanOut.EVERY,
    heard_ends: bool = False,
    station: int = 0,
    incidents: IncidentNews | None = None,
    **how: Any,
) -> AsyncIterator[Kit]:
    """Yield a kit. `how` contains `HubChannelOptions` for the first channel, and
    `station` is the sender on the air.
    """
    journal = Journal(path / "journal.sqlite3", TrustedClocks())
    # A kit that knows no member asks the hub for the directory in its first message.
    journal.commit_at_start(
        lambda db: inbound.store_identity(db, 9_999, Identity("9999", "Zoe", "User"))
    )

    def clock() -> float:
        return START + trio.current_time()

    inbox = Inbox(journal, ["script"], clock=clock, keys=keys, incidents=incidents)
    queues = {name: make_channel_queue(journal, name) for name in (channel, *also)}
    endings = Endings(journal, queues, clock=clock, fan_out=fan_out, ends_when_heard=heard_ends)
    intake = Intake(journal, queues, endings, time_to_live=3600, head_start=HEAD_START)
    outboxes: dict[Channel, ChannelOutbox] = {}
    receptions: dict[Channel, Reception] = {}
    for name, queue in queues.items():
        options = HubChannelOptions(**how) if name is channel else HubChannelOptions()
        outboxes[name], receptions[name] = assemble_hub_channel(
            journal, inbox, endings, queue, ChannelLink(), options
        )
    if station:
        packing = Packing(journal, queues[channel], station=station)
        budget, words = (
            Budget(channel, journal, clock=clock),
            HubPiggyback(journal, queues[channel]),
        )
        outboxes[channel] = ChannelOutbox(journal, packing, budget, words, endings, ChannelLink())
    Resume(journal, queues, intake, endings, trio.Event()).begin()
    try:
        async with running(journal), trio.open_nursery() as nursery:
            for each in outboxes.values():
                nursery.start_soon(each.run)
            yield Kit(
                journal,
                inbox,
                queues,
                endings,
                intake,
                outboxes,
                receptions,
                outboxes[channel],
                receptions[channel],
                nursery,
            )
            nursery.cancel_scope.cancel()
    finally:
        journal.close()


async def outcome(k: Kit, id_: int, within: float = 900) -> Status | None:
    """Wait for the terminal status of a posted Package, and return it. Fails after `within`
    seconds.
    """
    with fail_after(within):
        return (await k.endings.wait_for_outcome(k.standing(id_).sequence)).status


async def until(condition: Any, within: float = 900) -> None:
    """Wait until the condition is true. Fails after `within` seconds of the test's clock."""
    with fail_after(within):
        while not condition():
            await trio.sleep(2)
