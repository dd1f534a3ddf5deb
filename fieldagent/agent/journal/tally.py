"""Counters of the journal, which its triggers update in the same commit."""

from __future__ import annotations

from dataclasses import field

from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import Spent
from fieldagent.agent.journal.schema import LATENCY_BOUNDS as BOUNDS
from fieldagent.system.lazy_dataclass import dataclass

__all__ = ["BOUNDS", "Latency", "count_ended", "count_hook_results", "read_latencies", "sum_spent"]


@dataclass(slots=True)
class Latency:
    """Distribution of the delivery times of Packages."""

    counts: dict[int, int] = field(default_factory=dict)
    """Number of Packages for each bound of LATENCY_BOUNDS. A Package is counted at the lowest bound
    that its delivery time does not exceed, or at 0 if its time is above all bounds."""
    seconds: float = 0.0


def count_ended(journal: Journal) -> list[tuple[str, str, int]]:
    """Return the number of ended channel deliveries for each channel and status."""
    return _read_counts(journal, "ended")


def count_hook_results(journal: Journal) -> list[tuple[str, str, int]]:
    """Return the number of calls for each hook and result."""
    return _read_counts(journal, "hook")


def _read_counts(journal: Journal, kind: str) -> list[tuple[str, str, int]]:
    rows = journal.read(
        "SELECT who, result, count FROM tally WHERE what = ? ORDER BY who, result", kind
    )
    return [tuple(row) for row in rows]


def read_latencies(journal: Journal) -> dict[str, Latency]:
    """Return the delivery times by channel, from acceptance to delivery."""
    by_channel: dict[str, Latency] = {}
    for channel, bound, count, seconds in journal.read(
        "SELECT who, result, count, seconds FROM tally WHERE what = 'latency'"
    ):
        latency = by_channel.setdefault(channel, Latency())
        latency.counts[int(bound)] = count
        latency.seconds += seconds
    return by_channel


def sum_spent(journal: Journal) -> dict[str, Spent]:
    """Return the total costs of each channel, over all days."""
    rows = journal.read(
        "SELECT channel, sum(bytes), sum(credits), sum(doubtful) FROM spent GROUP BY channel"
    )
    return {channel: Spent(*sums) for channel, *sums in rows}
