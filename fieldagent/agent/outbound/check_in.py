"""The check-in that this kit asks the hub for, and how that stands."""

from __future__ import annotations

from typing import Any

from fieldagent.agent.journal import check_in, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.package.package import Channel, CheckIn, Package
from fieldagent.package.reading import KINDS

COLLAPSE_KEY = -1_667_591_278
"""A newer one takes the place of one that still waits."""
TO_HUB = frozenset({Channel.SATELLITE, Channel.CELLULAR})


def to_ask(within: int | None, configured: frozenset[Channel]) -> Package | None:
    """Return what is to be sent; None where no channel leads to the hub."""
    channels = configured & TO_HUB
    priority = KINDS["checkIn"].priority
    if not channels:
        return None
    return Package(CheckIn(within), None, channels, COLLAPSE_KEY, priority)


def standing(journal: Journal) -> dict[str, Any] | None:
    """Return how the check-in stands, as people are told of it; None where nothing is asked, or its
    end has reached the hub."""
    asked = check_in.asked(journal)
    if asked is None or (asked.within is None and asked.confirmed is not None):
        return None
    date = journal.clock.date
    known = outbound.by_sequence(journal, asked.sequence)
    last = asked.at if asked.heard is None else asked.heard
    counts = asked.confirmed is not None
    return {
        "package": None if known is None else known.id,
        "status": None if known is None else known.status,
        "within": asked.within,
        "since": date(asked.at),
        "confirmed": asked.confirmed,
        "due": date(last + (asked.within or 0)) if counts else None,
    }
