"""What the journal counts of itself: its triggers do, in the commit that it is about."""

from __future__ import annotations

from dataclasses import field

from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import Spent
from fieldagent.agent.journal.schema import LATENCY_BOUNDS as BOUNDS
from fieldagent.system.lazy_dataclass import dataclass

__all__ = ["BOUNDS", "Latency", "ended", "hook_results", "latencies", "spent"]


@dataclass(slots=True)
class Latency:
    """How long Packages took; those beyond the last bound are under 0."""

    counts: dict[int, int] = field(default_factory=dict)
    """By the lowest bound that they are within."""
    seconds: float = 0.0


def ended(journal: Journal) -> list[tuple[str, str, int]]:
    """Return channel, status, and how many ended so on it."""
    return _counts(journal, "ended")


def hook_results(journal: Journal) -> list[tuple[str, str, int]]:
    """Return hook, result, and how many calls had it."""
    return _counts(journal, "hook")


def _counts(journal: Journal, what: str) -> list[tuple[str, str, int]]:
    rows = journal.read(
        "SELECT who, result, count FROM tally WHERE what = ? ORDER BY who, result", what
    )
    return [tuple(row) for row in rows]


def latencies(journal: Journal) -> dict[str, Latency]:
    """Return how long deliveries took by channel, from accepted to delivered."""
    by_channel: dict[str, Latency] = {}
    for channel, bound, count, seconds in journal.read(
        "SELECT who, result, count, seconds FROM tally WHERE what = 'latency'"
    ):
        latency = by_channel.setdefault(channel, Latency())
        latency.counts[int(bound)] = count
        latency.seconds += seconds
    return by_channel


def spent(journal: Journal) -> dict[str, Spent]:
    """Return what was spent by channel, on all days together."""
    rows = journal.read(
        "SELECT channel, sum(bytes), sum(credits), sum(doubtful) FROM spent GROUP BY channel"
    )
    return {channel: Spent(*sums) for channel, *sums in rows}
