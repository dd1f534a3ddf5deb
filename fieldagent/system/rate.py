"""Rate limit by the generic cell rate algorithm (ITU-T I.371), with one timestamp per caller. Pure.

`tat` is the theoretical arrival time of the next call, and `now` is Unix time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import inf

from fieldagent.system.lazy_dataclass import dataclass

LOG_INTERVAL_S = 60.0
"""Minimum seconds between two log lines about the same kind of event."""


class EventRate:
    """Counts one kind of event, and limits its log lines to one every LOG_INTERVAL_S seconds.
    `clock` is any monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._logged_at = -inf
        self._since = 0

    def count_event(self) -> int:
        """Count an event. If a new log line is due, return the number of events since the last
        line, otherwise 0.
        """
        self._since += 1
        if self._clock() - self._logged_at < LOG_INTERVAL_S:
            return 0
        self._logged_at = self._clock()
        count, self._since = self._since, 0
        return count


@dataclass(frozen=True, slots=True)
class Rate:
    per_minute: float
    burst: int
    """Maximum number of calls that are allowed at once after a long silence."""

    def admit(self, tat: float, now: float) -> tuple[float, float]:
        """Decide whether a call at `now` is allowed. If so, return the new `tat`, which the caller
        stores, and 0. Otherwise return the old `tat`, and the seconds until a call is allowed.
        """
        interval = 60.0 / self.per_minute
        start = max(tat, now)
        wait = start - (self.burst - 1) * interval - now
        return (start + interval, 0.0) if wait <= 1e-6 else (tat, wait)


def format_retry_after(seconds: float) -> str:
    """Return the value of `Retry-After`: the whole seconds, at least 1, until the next call is
    allowed (RFC 9110 10.2.3).
    """
    return str(max(1, math.ceil(seconds)))
