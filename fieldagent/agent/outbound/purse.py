"""What a bearer that is paid by the message may still send today, kept over restarts."""

from __future__ import annotations

from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import Spent
from fieldagent.agent.outbound.budget import Budget, DayLimit
from fieldagent.wire.credit import Tariff

SMS = "SMS"
"""Under which the journal books them, beside the channels."""


class DayPurse:
    """Implements `sms.carrier.Purse`: so many messages a day, a tenth of them for an SOS."""

    def __init__(self, journal: Journal, limit: int) -> None:
        self._journal = journal
        limits = {SMS: DayLimit(limit, -(-limit // 10))}
        self._budget = Budget(
            SMS, journal, clock=journal.clock.now, limits=limits, tariff=lambda: Tariff(SMS)
        )

    def left(self, *, urgent: bool = False) -> int | None:
        return self._budget.left(urgent=urgent)

    def spent(self) -> int:
        return self._budget.spent().credits

    async def spend(self, count: int) -> None:
        await self._journal.persist(self._budget.book(Spent(0, count)))
