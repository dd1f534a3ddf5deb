"""The check-in that this kit requests from the hub, and its state."""

from __future__ import annotations

from typing import Any

from fieldagent.agent.journal import check_in, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.package.package import Channel, CheckIn, Package
from fieldagent.package.reading import KINDS

COLLAPSE_KEY = -1_667_591_278
"""CollapseKey of the requests: a newer request replaces a waiting one."""
TO_HUB = frozenset({Channel.SATELLITE, Channel.CELLULAR})


def make_request(limit_s: int | None, configured_channels: frozenset[Channel]) -> Package | None:
    """Return a Package that requests the check-in. Return None if no channel leads to the hub."""
    channels = configured_channels & TO_HUB
    priority = KINDS["checkIn"].priority
    if not channels:
        return None
    return Package(CheckIn(limit_s), None, channels, COLLAPSE_KEY, priority)


def describe_state(journal: Journal) -> dict[str, Any] | None:
    """Return the state of the check-in for people; None if there is no check-in, or if the hub has
    confirmed that it is over.
    """
    asked = check_in.read_last_request(journal)
    if asked is None or (asked.within_s is None and asked.confirmed is not None):
        return None
    date = journal.clock.date
    known = outbound.find_by_sequence(journal, asked.sequence)
    last = asked.at if asked.heard is None else asked.heard
    counts = asked.confirmed is not None
    return {
        "package": None if known is None else known.id,
        "status": None if known is None else known.status,
        "within": asked.within_s,
        "since": date(asked.at),
        "confirmed": asked.confirmed,
        "due": date(last + (asked.within_s or 0)) if counts else None,
    }
