"""Receives the hub's messages on one channel, and acts on them."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from typing import Protocol

from fieldagent.agent.inbound.incident_news import ForwardedUpdate
from fieldagent.agent.inbound.reception import Inbox, ReceivedMessage
from fieldagent.agent.journal import inbound, outbound
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.journal.records import DamagedPackage, StoredPackage
from fieldagent.agent.outbound.budget import Budget
from fieldagent.agent.outbound.channel_limits import compute_price
from fieldagent.agent.outbound.ending import Endings
from fieldagent.agent.outbound.item_identity import is_report_about
from fieldagent.agent.outbound.packing import Packing
from fieldagent.agent.outbound.piggyback import Piggyback
from fieldagent.agent.outbound.repeats import repeat
from fieldagent.store.group import StoreFailed, StoreFull
from fieldagent.system.supervisor import describe_error
from fieldagent.wire.envelope import Unreadable

log = logging.getLogger(__name__)


class Carrier(Protocol):
    """Sends the hub's messages to neighbours by radio."""

    def store(
        self, db: sqlite3.Connection, down: Sequence[ForwardedUpdate], now: float
    ) -> list[StoredPackage]:
        """Store messages for neighbours in this transaction, and return the accepted Packages."""

    def queue(self, stored_packages: Sequence[StoredPackage]) -> None: ...


class HubReception:
    """Implements `channels.contract.Reception` for the hub's messages. `carrier` is None if this
    kit does not relay for neighbours.
    """

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
        self._failed_message: bytes | None = None
        """Last message whose processing failed with an unexpected error. None after a success."""

    async def receive(
        self, body: bytes, *, damage: str = "", unreadable_message: Unreadable | None = None
    ) -> None:
        """Store a message of the hub and its cost in one commit, and act on its content.

        After an unexpected error, the driver restarts, and the message is processed once more.
        After a second error the message becomes a dead letter, so that it does not block the
        channel forever.
        """
        cost = self._budget.book(compute_price(self._queue.limits.tariff, len(body)))
        if damage:
            await self._store_damaged_message(body, cost, damage, unreadable_message)
            return
        try:
            await self._store_body(body, cost)
        except (StoreFailed, StoreFull):
            raise
        except Exception as error:
            if self._failed_message != body:
                self._failed_message = body
                raise
            log.exception("a message could not be processed, twice")
            # Do not book the cost, because the booking itself may have caused the error.
            await self._inbox.store_dead_letter(
                body,
                lambda db: None,
                channel=self._queue.channel,
                reason=f"the agent failed to process it, twice: {describe_error(error)}",
            )
        self._failed_message = None

    async def _store_damaged_message(
        self, body: bytes, cost: Operation[None], damage: str, unreadable_message: Unreadable | None
    ) -> None:
        """Store a damaged message and, in the same commit, record that the hub must be notified."""
        channel = self._queue.channel
        if unreadable_message is None:
            await self._inbox.store_dead_letter(body, cost, channel=channel, reason=damage)
            return
        clock = self._journal.clock
        report = inbound.PendingUnreadableReport(unreadable_message, int(clock.date(clock.now())))

        def store_unreadable_report(db: sqlite3.Connection) -> None:
            cost(db)
            inbound.add_unreadable_report(db, channel, report)

        await self._inbox.store_dead_letter(
            body, store_unreadable_report, channel=channel, reason=damage
        )
        self._piggyback.load_entries()
        self._queue.wake()

    async def _store_body(self, body: bytes, cost: Operation[None]) -> None:
        goes_down: list[StoredPackage] = []

        def store_forwarded_updates(db: sqlite3.Connection, result: ReceivedMessage) -> None:
            # The operation may run more than once, so start with an empty list each time.
            goes_down.clear()
            if self._carrier is not None:
                goes_down.extend(self._carrier.store(db, result.updates_for_kits, result.now))

        received = await self._inbox.store_message(
            body,
            cost,
            channel=self._queue.channel,
            receipt_channel=None if self._limits.confirms else self._queue.channel,
            is_tagged=not self._limits.authentic,
            after_store=store_forwarded_updates,
        )
        if self._carrier is not None:
            self._carrier.queue(goes_down)
        if received.has_nameless_author:
            self._piggyback.ask_names()
            self._queue.wake()
        if received.owed:
            self._piggyback.load_entries()
            self._queue.wake()
        for sequence in received.receipts if received.is_authenticated else ():
            await self._endings.record_arrival_at_hub(sequence, is_proved=True)
        for sequence, report in received.reports:
            try:
                package = outbound.read_kept_package(self._journal, sequence)
            except DamagedPackage:
                continue
            if package is None:
                continue
            if not is_report_about(package, report, self._packing.capacity.compute_whole(0)):
                self._inbox.record_mismatch(sequence)
                continue
            missing = frozenset(range(report.count)) - report.arrived
            log.info("the peer is missing %d fragments of %d", len(missing), sequence)
            await repeat(self._journal, self._queue, sequence, missing)
