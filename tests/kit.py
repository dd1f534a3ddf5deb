"""One run of an agent's core on a journal of its own, with the driver left to the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.agent.channels.contract import Transmission
from fieldagent.agent.events import Events
from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.agent.outbound.piggyback import HubRiders
from fieldagent.package.delivery import FanOut
from fieldagent.package.package import Channel, Status
from fieldagent.package.reading import read_package
from fieldagent.wire.envelope import Entry, decode
from fieldagent.wire.outcome import Outcome

START = 1_790_000_000.0
HEAD_START = 120.0
RATES = [pytest.param(0.0, id="time-stands-still"), pytest.param(1.0, id="time-passes")]
"""How fast virtual time runs while code does. At 0 no test sees a moment that has just passed."""


class PatientJournal(Journal):
    """Virtual time stands still while a disk is at work: a slow one must not fire deadlines."""

    _at_work = 0
    """How many journals are, as there may be several in a test."""
    _threshold = 0.0

    async def _commit_all(self) -> None:
        clock = trio.lowlevel.current_clock()
        if not isinstance(clock, trio.testing.MockClock):
            return await super()._commit_all()
        if not self._at_work:
            PatientJournal._threshold, clock.autojump_threshold = clock.autojump_threshold, inf
        PatientJournal._at_work += 1
        try:
            await super()._commit_all()
        finally:
            PatientJournal._at_work -= 1
            if not self._at_work:
                clock.autojump_threshold = self._threshold


@dataclass
class Kit:
    """One run of an agent's core, with virtual time as its wall clock."""

    journal: Journal
    inbox: Inbox
    outbox: ChannelOutbox
    intake: Intake
    nursery: trio.Nursery
    outboxes: dict[Channel, ChannelOutbox]

    async def post(self, key: str | None = None, **document: Any) -> int:
        """Post a Package, a message unless told otherwise; its id."""
        if not {"message", "data", "location"} & document.keys():
            document["message"] = {"content": "hello"}
        return (await self.intake.accept(read_package(document), key)).id

    def load(self, room: int = 340) -> Transmission:
        transmission = self.outbox.load(room)
        assert transmission is not None
        return transmission

    async def send(
        self, outcome: Outcome = Outcome.SENT, channel: Channel | None = None, **how: Any
    ) -> list[Entry]:
        """One transmission from load to settle; what was in it."""
        outbox = self.outbox if channel is None else self.outboxes[channel]
        transmission = outbox.load(340)
        assert transmission is not None
        await outbox.intend(transmission, modem="300", momsn=1)
        await outbox.settle(transmission, outcome, **how)
        return list(decode(transmission.body).entries)

    def status(self, id_: int) -> Status | None:
        return self.intake.standing(id_).status

    def reason(self, id_: int) -> str:
        return self.intake.standing(id_).legs[self.outbox.channel].reason


@asynccontextmanager
async def kit(
    path: Path,
    channel: Channel = Channel.SATELLITE,
    *,
    keys: Sequence[bytes] = (),
    also: Sequence[Channel] = (),
    fan_out: FanOut = FanOut.EVERY,
    receipts_at_once: bool = False,
    **how: Any,
) -> AsyncIterator[Kit]:
    journal = PatientJournal(path / "journal.sqlite3")

    def clock() -> float:
        return START + trio.current_time()

    inbox = Inbox(journal, ["script"], clock=clock, events=Events(), keys=keys)
    outboxes: dict[Channel, ChannelOutbox] = {}
    intake = Intake(
        journal,
        outboxes,
        time_to_live=3600,
        clock=clock,
        events=Events(),
        fan_out=fan_out,
        head_start=HEAD_START,
    )
    riders = HubRiders(journal, channel, at_once=receipts_at_once)
    outbox = ChannelOutbox(
        channel, journal, inbox, clock=clock, end=intake.end, riders=riders, **how
    )
    outboxes[channel] = outbox
    for name in also:
        outboxes[name] = ChannelOutbox(name, journal, inbox, clock=clock, end=intake.end)
    intake.resume()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(journal.run)
            for each in outboxes.values():
                nursery.start_soon(each.run)
            yield Kit(journal, inbox, outbox, intake, nursery, outboxes)
            nursery.cancel_scope.cancel()
    finally:
        journal.close()
