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
    request = check_in.read_last_request(journal)
    if request is None or (request.within_s is None and request.confirmed is not None):
        return None
    date = journal.clock.date
    package = outbound.find_by_sequence(journal, request.sequence)
    last = request.at if request.heard is None else request.heard
    counts = request.confirmed is not None
    return {
        "package": None if package is None else package.id,
        "status": None if package is None else package.status,
        "within": request.within_s,
        "since": date(request.at),
        "confirmed": request.confirmed,
        "due": date(last + (request.within_s or 0)) if counts else None,
    }
