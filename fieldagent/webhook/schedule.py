"""When a delivery that failed is tried again, by the schedule of Standard Webhooks 1.0.0."""

from __future__ import annotations

from collections.abc import Sequence

MINUTE, HOUR = 60.0, 3600.0

SCHEDULE = (
    0.0,
    5.0,
    5 * MINUTE,
    30 * MINUTE,
    2 * HOUR,
    5 * HOUR,
    10 * HOUR,
    14 * HOUR,
    20 * HOUR,
    24 * HOUR,
)
"""Seconds from each attempt to the one after; when the last has failed, it is a dead letter."""

SOS_SCHEDULE = (
    0.0,
    5.0,
    MINUTE,
    *[5 * MINUTE] * 12,
    *[30 * MINUTE] * 46,
    *[2 * HOUR] * 24,
)
"""Of an SOS: every five minutes for an hour, each half hour of that day, and then every two hours
for two days. Who was away for ten minutes is not told of it after half an hour more."""

JITTER = 0.2
"""Share of the delay that is added at most, so that many kits do not call at one moment."""

RETRY_AFTER_MAX = 24 * HOUR
"""Seconds that another side may make us wait."""

LONGEST = SCHEDULE[-1] * (1 + JITTER)


def delay(
    attempts: int, *, schedule: Sequence[float], retry_after: float, chance: float
) -> float | None:
    """Return the seconds from the `attempts`th failure to the next attempt; None: it was the last.

    `chance` is in [0, 1).
    """
    if attempts >= len(schedule):
        return None
    return max(schedule[attempts] * (1 + JITTER * chance), min(retry_after, RETRY_AFTER_MAX))


def wait(not_before: float, now: float) -> float:
    """Return the seconds until it may be tried; 0 is now.

    A time further away than any schedule reaches was written before the clock was set back:
    gateways without a battery do that at every start.
    """
    seconds = not_before - now
    return 0.0 if seconds > LONGEST else max(seconds, 0.0)
