"""Limits the cost of people's messages, and the frequency of actions that cost something."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from math import inf

from fieldagent.agent.journal import handhelds, history, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.affordable import AffordablePlan, SpendingLimits, find_affordable
from fieldagent.agent.outbound.cost import compute_costs
from fieldagent.agent.outbound.others_sos import book_price, make_plan
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.package.package import Channel, Package


class HandheldLimits:
    """Limits for handhelds. `affordable.SpendingLimits` explains `bearer_bytes`."""

    def __init__(
        self,
        journal: Journal,
        outboxes: Mapping[Channel, ChannelOutbox],
        *,
        bearer_bytes: int = 0,
    ) -> None:
        self._journal = journal
        self._outboxes = outboxes
        self._bearer_bytes = bearer_bytes
        self._positions: dict[str, float] = {}
        self._guesses: dict[tuple[str, str], int] = {}

    def get_day(self) -> str:
        """Return today's UTC date in ISO 8601."""
        now = self._journal.clock.date(self._journal.clock.now())
        return datetime.fromtimestamp(now, UTC).date().isoformat()

    def compute_price(self, package: Package) -> int:
        """Return the satellite credits of a Package that is sent separately, or 0 if the Package is
        free.
        """
        now = self._journal.clock.date(self._journal.clock.now())
        cost = compute_costs(package, self._outboxes, now).get(Channel.SATELLITE)
        return 0 if cost is None else cost.credits

    def read_spent(self, handle: str, message_number: int) -> int:
        """Return the largest possible cost of a person's messages today. The message with the
        number `message_number` is not included, because it may have been booked before a power
        failure.
        """
        return handhelds.sum_spent(self._journal, self.get_day(), handle, message_number)

    def afford(
        self, handle: str, message_number: int, package: Package, limit: int
    ) -> AffordablePlan:
        """Return the Package of an unauthenticated person with the channels that it may use: free
        channels, and other channels if their cost is within `limit`. `limit` is in credits per day
        for all such people together.
        """
        credits_left = limit - handhelds.sum_spent_by_all(
            self._journal, self.get_day(), handle, message_number
        )
        limits = SpendingLimits(
            "" if limit else "mesh-credits-per-day is not set",
            max(0, credits_left),
            limit,
            "mesh-credits-per-day allows for stations",
            self._bearer_bytes,
        )
        now = self._journal.clock.date(self._journal.clock.now())
        return find_affordable(package, self._outboxes, now, limits)

    def afford_sos(self, package: Package) -> AffordablePlan:
        """Return the SOS of an unauthenticated person with the channels that it may use."""
        return make_plan(package, self._journal, self._outboxes)

    async def book_sos_cost(self, price: int) -> None:
        """Book the cost of an unauthenticated person's SOS before the SOS is accepted."""
        await book_price(self._journal, price)

    async def book_price(self, handle: str, message_number: int, price: int) -> None:
        """Book the price of a message before its Package is accepted. If power fails in between,
        the person may send one message less on this day, but never one message more.
        """
        if price:
            await self._journal.persist(
                handhelds.book_packet_cost(self.get_day(), handle, message_number, price)
            )

    async def cancel_bookings(self) -> None:
        """Cancel the bookings of messages that have ended and cost nothing because a free channel
        was faster.
        """
        day = self.get_day()
        free = [each for each in handhelds.list_booked(self._journal, day) if self._is_free(*each)]
        if free:
            await self._journal.persist(handhelds.cancel_bookings(day, free))

    def _is_free(self, handle: str, number: int) -> bool:
        earlier_package = outbound.find_by_idempotency_key(
            self._journal, handhelds.make_idempotency_key(handle, number)
        )
        if earlier_package is None:
            return False
        deliveries = outbound.read_deliveries(self._journal, earlier_package.sequence)
        paid_channels = [
            deliveries[each] for each in (Channel.SATELLITE, Channel.CELLULAR) if each in deliveries
        ]
        return (
            all(delivery.status is not None for delivery in paid_channels)
            and not history.can_have_left(
                self._journal, earlier_package.sequence, Channel.SATELLITE
            )
            and not history.is_sent_by_sms(self._journal, earlier_package.sequence)
        )

    def begin_position_interval(self, handle: str, interval_s: int) -> bool:
        """Return True if a position may be sent now. In this case, start the interval until the
        next position.
        """
        now = self._journal.clock.now()
        if now < self._positions.get(handle, -inf) + interval_s:
            return False
        self._positions[handle] = now
        return True

    def count_guess(self, handle: str) -> int:
        """Count an attempt to enter a code, and return the number of today's attempts."""
        today = self.get_day()
        self._guesses = {key: count for key, count in self._guesses.items() if key[0] == today}
        self._guesses[today, handle] = self._guesses.get((today, handle), 0) + 1
        return self._guesses[today, handle]
