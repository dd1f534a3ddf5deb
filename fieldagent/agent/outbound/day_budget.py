"""Daily budget of one ingress or bearer. The journal stores it, so it survives restarts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fieldagent.agent.journal import history, spending
from fieldagent.agent.journal.journal import Journal, combine_operations
from fieldagent.agent.journal.records import Spent
from fieldagent.agent.journal.spending import BudgetDay
from fieldagent.agent.outbound.affordable import AffordablePlan
from fieldagent.agent.outbound.budget import Budget, DayLimit
from fieldagent.package.package import Channel
from fieldagent.wire.credit import Tariff


class DayBudget:
    """A budget of `limit` units for each day. Of these, `reserve` units are kept for an SOS."""

    def __init__(self, journal: Journal, name: str, limit: int, reserve: int = 0) -> None:
        self._journal = journal
        self._name = name
        limits = {name: DayLimit(limit, reserve)}
        self._budget = Budget(
            name, journal, clock=journal.clock.now, limits=limits, tariff=lambda: Tariff(name)
        )
        self._paid_on: BudgetDay | None = None
        """Day of the last booking. An undone booking returns the cost to this day's budget."""

    def compute_remaining(self, *, urgent: bool = False, is_halved: bool = False) -> int | None:
        return self._budget.compute_remaining(urgent=urgent, is_halved=is_halved)

    def compute_spent(self) -> int:
        return self._budget.get_spent().credits

    async def spend(self, count: int) -> None:
        if count > 0:
            self._paid_on = self._budget.get_today()
        await self._book(count, self._paid_on)

    async def _book(self, count: int, day: BudgetDay | None) -> None:
        await self._journal.persist(self._budget.book(Spent(0, count), day))

    @asynccontextmanager
    async def book(self, count: int) -> AsyncIterator[None]:
        """Book the cost before the block accepts the Package, so that a crash cannot exceed the
        budget. If the block raises an exception, undo the booking.
        """
        day = self._budget.get_today()
        if count:
            await self._book(count, day)
        try:
            yield
        except Exception:
            if count:
                await self._book(-count, day)
            raise

    async def record_booking(self, sequence: int, plan: AffordablePlan) -> None:
        """Store the credits and SMS that were booked for a Package, so that they can be refunded
        after a restart.
        """
        if plan.price:
            booked = {Channel.SATELLITE: plan.satellite, Channel.CELLULAR: plan.sms}
            day = self._budget.get_today()
            await self._journal.persist(spending.record_bookings(self._name, sequence, booked, day))

    async def refund_unspent(self) -> None:
        """Return to the budget the booked credits and SMS of ended Packages that never left over
        satellite or by SMS. Another channel may have delivered them sooner.
        """
        for booking in spending.list_ended_bookings(self._journal, self._name):
            operation = spending.delete_booking(self._name, booking)
            if not self._has_cost(booking.sequence, booking.channel):
                refunded = self._budget.book(Spent(0, -booking.credits), booking.day)
                operation = combine_operations(operation, refunded)
            await self._journal.persist(operation)

    def _has_cost(self, sequence: int, channel: Channel) -> bool:
        """Return True if a Package may have cost something on `channel`."""
        if channel is Channel.CELLULAR:
            return history.is_sent_by_sms(self._journal, sequence)
        return history.can_have_left(self._journal, sequence, channel)
