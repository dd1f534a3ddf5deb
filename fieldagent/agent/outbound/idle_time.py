"""Measures the time since the last event of each key. The result is correct even if the wall clock
is set in that time. Pure.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import inf
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class IdleTimes(Generic[K]):
    """Measures the seconds since the last event of each key. `interval_max_s` is the longest time
    between two calls of `measure`.
    """

    def __init__(self, interval_max_s: float) -> None:
        self._interval_max_s = interval_max_s
        self._last_events: dict[K, tuple[float, float]] = {}
        """Time of each key's last event by the wall clock, and by the monotonic clock."""
        self._oldest = inf
        """Limit in seconds for the age of a new event: the time since the previous call of
        `measure`. The first call has no limit."""

    def measure(self, last: Mapping[K, float], now: float, unix: float) -> dict[K, float]:
        """Return the seconds since the last event of each key. `last` contains the Unix times of
        these events; each event of a key has a different time. `now` is the time of a monotonic
        clock, and `unix` of the wall clock.
        """
        last_events = {}
        for key, at in last.items():
            before = self._last_events.get(key)
            if before is None or before[0] != at:
                before = at, now - min(max(0.0, unix - at), self._oldest)
            last_events[key] = before
        self._last_events, self._oldest = last_events, self._interval_max_s
        return {key: now - since for key, (_, since) in last_events.items()}
