"""Daily budget for SOS items that are relayed or come from an unauthenticated sender, and the
channels for such an SOS.

Any person with a radio can send such an SOS, so the budget is only a few credits a day. It cannot
use half of the day's reserve (`Budget.compute_remaining`), which is kept for an SOS of the kit's
own people. Over free channels, such an SOS is sent like any other. An SOS without proof, from any
radio or TAK phone, has its own incident.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from fieldagent.agent.journal import spending
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.journal.records import Spent
from fieldagent.agent.outbound.affordable import AffordablePlan, SpendingLimits, find_affordable
from fieldagent.agent.outbound.budget import compute_day
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.package.package import Channel, Package
from fieldagent.system.elapsed_time import ElapsedTime

OTHERS_SOS_COST_NAME = "an SOS of others"
"""Name under which the journal's table of costs stores the credits of this budget, in place of a
channel's name."""
CREDITS_PER_DAY = 5


def compute_remaining_in(db: sqlite3.Connection, now: float, clock: ElapsedTime) -> int:
    """Return today's remaining credits, within a transaction. `now` is elapsed time."""
    day = compute_day(spending.read_known_day_in(db), now, clock)
    return max(0, CREDITS_PER_DAY - spending.read_spent_in(db, OTHERS_SOS_COST_NAME, day).credits)


def compute_remaining(journal: Journal) -> int:
    """Return today's remaining credits, outside a transaction."""
    day = compute_day(spending.read_known_day(journal), journal.clock.now(), journal.clock)
    return max(0, CREDITS_PER_DAY - spending.read_spent(journal, OTHERS_SOS_COST_NAME, day).credits)


def spend(credit: int, now: float, clock: ElapsedTime) -> Operation[None]:
    """Return an operation that books `credit` credits for the current day."""

    def store(db: sqlite3.Connection) -> None:
        day = compute_day(spending.read_known_day_in(db), now, clock)
        spending.spend(OTHERS_SOS_COST_NAME, day, Spent(0, credit))(db)

    return store


SOS_LIMIT_NAME = "an SOS of unproved radios and of neighbours may cost"


def make_plan(
    package: Package, journal: Journal, outboxes: Mapping[Channel, ChannelOutbox]
) -> AffordablePlan:
    """Return the SOS with the channels that it may use today, and the price."""
    limits = SpendingLimits("", compute_remaining(journal), CREDITS_PER_DAY, SOS_LIMIT_NAME, False)
    return find_affordable(package, outboxes, journal.clock.date(journal.clock.now()), limits)


async def book_price(journal: Journal, price: int) -> None:
    """Book the price of an SOS without proof. Call this function before the SOS is accepted."""
    if price:
        clock = journal.clock
        await journal.persist(spend(price, clock.now(), clock))
