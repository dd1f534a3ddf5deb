"""Chooses the channels for an SOS whose sender is not proved, from any radio or TAK phone, and
books its price.

Such an SOS has its own incident. It is sent over every free channel, and over paid channels if the
small budget of `others_sos` can pay for them.
"""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound import others_sos
from fieldagent.agent.outbound.affordable import AffordablePlan, SpendingLimits, find_affordable
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.package.package import Channel, Package

LIMIT = "an SOS of unproved radios and of neighbours may cost"


def make_plan(
    package: Package, journal: Journal, outboxes: Mapping[Channel, ChannelOutbox]
) -> AffordablePlan:
    """Return the SOS with the channels that it may use today, and the price."""
    limits = SpendingLimits(
        "", others_sos.compute_remaining(journal), others_sos.CREDITS_PER_DAY, LIMIT, False
    )
    return find_affordable(package, outboxes, journal.clock.date(journal.clock.now()), limits)


async def book_price(journal: Journal, price: int) -> None:
    """Book the price of an SOS without proof. Call this function before the SOS is accepted."""
    if price:
        clock = journal.clock
        await journal.persist(others_sos.spend(price, clock.now(), clock))
