"""Takes in what the hub sends over one channel, and does what follows from it."""

from __future__ import annotations

import logging

from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.budget import Budget
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.piggyback import Piggyback
from fieldagent.agent.outbound.repeat import repeat
from fieldagent.agent.outbound.terms import TERMS, price

log = logging.getLogger(__name__)


class HubReception:
    """Implements `channels.contract.Reception`."""

    def __init__(
        self,
        journal: Journal,
        inbox: Inbox,
        queue: ChannelQueue,
        budget: Budget,
        piggyback: Piggyback,
    ) -> None:
        self._journal = journal
        self._inbox = inbox
        self._queue = queue
        self._budget = budget
        self._piggyback = piggyback
        self._terms = TERMS[queue.channel]

    async def receive(self, body: bytes) -> None:
        """The message and its cost are one commit."""
        spent = price(self._queue.channel, len(body))
        taken = await self._inbox.take_in(
            body,
            self._budget.book(spent),
            owes=None if self._terms.confirms else self._queue.channel,
            tagged=not self._terms.authentic,
        )
        if taken.owed:
            self._piggyback.look()
            self._queue.wake()
        for sequence, report in taken.reports:
            missing = frozenset(range(report.count)) - report.arrived
            log.info("the peer lacks %d fragments of %d", len(missing), sequence)
            await repeat(self._journal, self._queue, sequence, missing)
