"""Takes in what the hub sends over one channel, and does what follows from it."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from typing import Protocol

from fieldagent.agent.inbound.incident_news import GoesDown
from fieldagent.agent.inbound.reception import Inbox, Taken
from fieldagent.agent.journal import inbound, outbound
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.journal.records import Accepted, DamagedPackage
from fieldagent.agent.outbound.budget import Budget
from fieldagent.agent.outbound.channel_limits import price
from fieldagent.agent.outbound.ending import Endings
from fieldagent.agent.outbound.item_identity import is_about
from fieldagent.agent.outbound.packing import Packing
from fieldagent.agent.outbound.piggyback import Piggyback
from fieldagent.agent.outbound.repeat import repeat
from fieldagent.store.group import StoreFailed, StoreFull
from fieldagent.system.supervisor import brief
from fieldagent.wire.envelope import Unreadable

log = logging.getLogger(__name__)


class Carrier(Protocol):
    """Brings down what the hub has for neighbours, as `mesh.relay_down`."""

    def store(self, db: sqlite3.Connection, down: Sequence[GoesDown], now: float) -> list[Accepted]:
        """Store what goes down to neighbours, in this transaction; return what was accepted."""

    def queue(self, accepted: Sequence[Accepted]) -> None: ...


class HubReception:
    """Implements `channels.contract.Reception`. `carrier` is there where this kit brings up
    what neighbours say."""

    def __init__(
        self,
        journal: Journal,
        inbox: Inbox,
        packing: Packing,
        budget: Budget,
        piggyback: Piggyback,
        endings: Endings,
        *,
        carrier: Carrier | None = None,
    ) -> None:
        self._journal = journal
        self._inbox = inbox
        self._packing = packing
        self._queue = packing.queue
        self._budget = budget
        self._piggyback = piggyback
        self._endings = endings
        self._carrier = carrier
        self._limits = packing.queue.limits
        self._failed: bytes | None = None
        """The message that failed to be taken in last."""

    async def receive(
        self, body: bytes, *, damage: str = "", unreadable: Unreadable | None = None
    ) -> None:
        """Take in a message of the hub's; the message and its cost are one commit.

        What fails by a mistake of ours is tried once more, when the driver was started again. Then
        it is a dead letter: it must not hold up its channel for ever.
        """
        cost = self._budget.book(price(self._queue.limits.tariff, len(body)))
        if damage:
            await self._bury(body, cost, damage, unreadable)
            return
        try:
            await self._take_in(body, cost)
        except (StoreFailed, StoreFull):
            raise
        except Exception as error:
            if self._failed != body:
                self._failed = body
                raise
            log.exception("a message could not be taken in, twice")
            # Without its cost, which may be what fails.
            await self._inbox.bury(
                body,
                lambda db: None,
                channel=self._queue.channel,
                reason=f"the agent failed to take it in, twice: {brief(error)}",
            )
        self._failed = None

    async def _bury(
        self, body: bytes, cost: Operation[None], damage: str, unreadable: Unreadable | None
    ) -> None:
        """Keep what came damaged; the hub is to be told, in the same commit."""
        channel = self._queue.channel
        if unreadable is None:
            await self._inbox.bury(body, cost, channel=channel, reason=damage)
            return
        clock = self._journal.clock
        owed = inbound.UnreadableOwed(unreadable, int(clock.date(clock.now())))

        def also(db: sqlite3.Connection) -> None:
            cost(db)
            inbound.owe_unreadable(db, channel, owed)

        await self._inbox.bury(body, also, channel=channel, reason=damage)
        self._piggyback.look()
        self._queue.wake()

    async def _take_in(self, body: bytes, cost: Operation[None]) -> None:
        goes_down: list[Accepted] = []

        def then(db: sqlite3.Connection, taken: Taken) -> None:
            # A transaction may be carried out anew: each time it begins with nothing.
            goes_down.clear()
            if self._carrier is not None:
                goes_down.extend(self._carrier.store(db, taken.down, taken.now))

        taken = await self._inbox.take_in(
            body,
            cost,
            channel=self._queue.channel,
            owes=None if self._limits.confirms else self._queue.channel,
            tagged=not self._limits.authentic,
            then=then,
        )
        if self._carrier is not None:
            self._carrier.queue(goes_down)
        if taken.nameless:
            self._piggyback.ask_names()
            self._queue.wake()
        if taken.owed:
            self._piggyback.look()
            self._queue.wake()
        for sequence in taken.receipts if taken.proved else ():
            await self._endings.note_at_hub(sequence, proved=True)
        for sequence, report in taken.reports:
            try:
                known = outbound.package(self._journal, sequence)
            except DamagedPackage:
                continue
            if known is None:
                continue
            if not is_about(known, report, self._packing.capacity.whole(0)):
                self._inbox.note_mismatch(sequence)
                continue
            missing = frozenset(range(report.count)) - report.arrived
            log.info("the peer lacks %d fragments of %d", len(missing), sequence)
            await repeat(self._journal, self._queue, sequence, missing)
