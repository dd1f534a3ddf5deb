"""Daily budget of one ingress or bearer, which survives restarts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fieldagent.agent.journal import history, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import Spent
from fieldagent.agent.journal.spending import BudgetDay
from fieldagent.agent.outbound.affordable import Affordable
from fieldagent.agent.outbound.budget import Budget, DayLimit
from fieldagent.package.package import Channel
from fieldagent.wire.credit import Tariff

PROMISED_MAX = 1_000
"""Most Packages whose credits and SMS may be given back."""


class DayBudget:
    """A budget of `limit` a day, of which `reserve` is for an SOS."""

    def __init__(self, journal: Journal, name: str, limit: int, reserve: int = 0) -> None:
        self._journal = journal
        limits = {name: DayLimit(limit, reserve)}
        self._budget = Budget(
            name, journal, clock=journal.clock.now, limits=limits, tariff=lambda: Tariff(name)
        )
        self._paid_on: BudgetDay | None = None
        """Day of the last booking: canceled bookings belong to it."""
        self._promised: OrderedDict[int, tuple[Mapping[Channel, int], BudgetDay]] = OrderedDict()
        """Credits and SMS that were booked for a Package, and the day, by its sequence."""

    def left(self, *, urgent: bool = False) -> int | None:
        return self._budget.left(urgent=urgent)

    def spent(self) -> int:
        return self._budget.spent().credits

    async def spend(self, count: int) -> None:
        if count > 0:
            self._paid_on = self._budget.today()
        await self._book(count, self._paid_on)

    async def _book(self, count: int, day: BudgetDay | None) -> None:
        await self._journal.persist(self._budget.book(Spent(0, count), day))

    @asynccontextmanager
    async def paying(self, count: int) -> AsyncIterator[None]:
        """Book the cost before the Package may leave, so that a crash in between cannot exceed the
        budget. If the block raises, the cost is returned.
        """
        day = self._budget.today()
        if count:
            await self._book(count, day)
        try:
            yield
        except Exception:
            if count:
                await self._book(-count, day)
            raise

    def promise(self, sequence: int, plan: Affordable) -> None:
        """Remember the credits and SMS that were booked for a Package. A restart forgets them: then
        they stay booked."""
        if plan.price:
            booked = {Channel.SATELLITE: plan.satellite, Channel.CELLULAR: plan.sms}
            self._promised[sequence] = booked, self._budget.today()
        if len(self._promised) > PROMISED_MAX:
            self._promised.popitem(last=False)

    async def give_back(self) -> None:
        """Give back what was booked for Packages that have ended, and of which nothing left over
        satellite or by SMS: another way was quicker."""
        for sequence, (booked, day) in [*self._promised.items()]:
            deliveries = outbound.deliveries(self._journal, sequence)
            over = {
                each
                for each in booked
                if each not in deliveries or deliveries[each].status is not None
            }
            rest = {each: count for each, count in booked.items() if each not in over}
            if any(rest.values()):
                self._promised[sequence] = rest, day
            else:
                del self._promised[sequence]
            free = over & deliveries.keys()
            if unspent := sum(booked[each] for each in free if not self._cost(sequence, each)):
                await self._book(-unspent, day)

    def _cost(self, sequence: int, channel: Channel) -> bool:
        """Return True if a Package may have cost something on that channel."""
        if channel is Channel.CELLULAR:
            return history.went_by_sms(self._journal, sequence)
        return history.may_have_left(self._journal, sequence, channel)
