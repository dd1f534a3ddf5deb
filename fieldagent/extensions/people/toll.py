"""Limits the cost of people's messages, and how often a handheld may do things that cost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from math import inf

from fieldagent.agent.journal import handhelds, history, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound import unproved_sos
from fieldagent.agent.outbound.affordable import AffordablePlan, SpendingLimits, find_affordable
from fieldagent.agent.outbound.cost import compute_costs
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.package.package import Channel, Package


class HandheldLimits:
    """Limits for handhelds. `bearer_bytes` is explained in `affordable.SpendingLimits`."""

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
        """Return the UTC day in ISO 8601."""
        now = self._journal.clock.date(self._journal.clock.now())
        return datetime.fromtimestamp(now, UTC).date().isoformat()

    def compute_price(self, package: Package) -> int:
        """Return the satellite credits of a Package that is sent alone; 0 if the Package is
        free.
        """
        now = self._journal.clock.date(self._journal.clock.now())
        cost = compute_costs(package, self._outboxes, now).get(Channel.SATELLITE)
        return 0 if cost is None else cost.credits

    def read_spent(self, handle: str, number: int) -> int:
        """Return the possible cost of a person's messages of today, without the message with that
        number, because this message may have been booked before a power failure.
        """
        return handhelds.sum_spent(self._journal, self.get_day(), handle, number)

    def afford(self, handle: str, number: int, package: Package, limit: int) -> AffordablePlan:
        """Return an unauthenticated person's Package with the channels that the Package may use:
        free channels, and others within `limit` credits a day for all such people together.
        """
        left = limit - handhelds.sum_spent_by_all(self._journal, self.get_day(), handle, number)
        limits = SpendingLimits(
            "" if limit else "mesh-credits-per-day is not set",
            max(0, left),
            limit,
            "mesh-credits-per-day allows for stations",
            self._bearer_bytes,
        )
        now = self._journal.clock.date(self._journal.clock.now())
        return find_affordable(package, self._outboxes, now, limits)

    def afford_sos(self, package: Package) -> AffordablePlan:
        """Return an unauthenticated person's SOS with the channels that the SOS may use."""
        return unproved_sos.make_plan(package, self._journal, self._outboxes)

    async def book_sos_cost(self, price: int) -> None:
        """Book the cost of an unauthenticated person's SOS before the SOS is accepted."""
        await unproved_sos.book_price(self._journal, price)

    async def receive_message(self, handle: str, number: int, price: int) -> None:
        """Book the price before the Package is accepted. If power fails in between, the person may
        send one message less on that day, never one more.
        """
        if price:
            await self._journal.persist(
                handhelds.book_packet_cost(self.get_day(), handle, number, price)
            )

    async def cancel_bookings(self) -> None:
        """Cancel the bookings of messages that have ended and cost nothing, because a free channel
        was quicker.
        """
        day = self.get_day()
        free = [each for each in handhelds.list_booked(self._journal, day) if self._is_free(*each)]
        if free:
            await self._journal.persist(handhelds.cancel_bookings(day, free))

    def _is_free(self, handle: str, number: int) -> bool:
        known = outbound.find_by_idempotency_key(self._journal, handhelds.make_key(handle, number))
        if known is None:
            return False
        deliveries = outbound.read_deliveries(self._journal, known.sequence)
        paid = [
            deliveries[each] for each in (Channel.SATELLITE, Channel.CELLULAR) if each in deliveries
        ]
        return (
            all(delivery.status is not None for delivery in paid)
            and not history.can_have_left(self._journal, known.sequence, Channel.SATELLITE)
            and not history.is_sent_by_sms(self._journal, known.sequence)
        )

    def begin_position_interval(self, handle: str, interval_s: int) -> bool:
        """Return True if a position may be sent now, and start the interval in that case."""
        now = self._journal.clock.now()
        if now < self._positions.get(handle, -inf) + interval_s:
            return False
        self._positions[handle] = now
        return True

    def guess(self, handle: str) -> int:
        """Count an attempted code, and return the number of attempts today."""
        today = self.get_day()
        self._guesses = {key: count for key, count in self._guesses.items() if key[0] == today}
        self._guesses[today, handle] = self._guesses.get((today, handle), 0) + 1
        return self._guesses[today, handle]
