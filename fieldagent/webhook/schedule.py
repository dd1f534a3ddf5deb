"""Computes when a failed delivery is tried again, by the schedule of Standard Webhooks 1.0.0."""

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
"""Seconds from each attempt to the next attempt. If the last attempt fails, the delivery becomes a
dead letter."""

SOS_SCHEDULE = (
    0.0,
    5.0,
    MINUTE,
    *[5 * MINUTE] * 12,
    *[30 * MINUTE] * 46,
    *[2 * HOUR] * 24,
)
"""Schedule of an SOS: every five minutes for an hour, every half hour for the rest of the day, and
then every two hours for two days. So an SOS for a receiver that was down for ten minutes does not
wait half an hour more."""

JITTER_SHARE = 0.2
"""Largest share of the delay that is added at random, so that many kits do not call at the same
time."""

RETRY_AFTER_MAX_S = 24 * HOUR
"""Maximum number of seconds for which the receiver can postpone the next attempt."""

DELAY_MAX_S = SCHEDULE[-1] * (1 + JITTER_SHARE)


def compute_delay(
    attempts: int, *, schedule: Sequence[float], retry_after: float, random_share: float
) -> float | None:
    """Return the seconds to wait after `attempts` failed attempts, or None if no attempt is left.

    `random_share` is in [0, 1).
    """
    if attempts >= len(schedule):
        return None
    return max(
        schedule[attempts] * (1 + JITTER_SHARE * random_share), min(retry_after, RETRY_AFTER_MAX_S)
    )


def compute_wait(not_before: float, now: float) -> float:
    """Return the seconds until the next attempt, or 0 if it is due now.

    A time beyond the longest delay is treated as now. It was stored before the clock was set back,
    which happens at each start of a gateway without a clock battery.
    """
    seconds = not_before - now
    return 0.0 if seconds > DELAY_MAX_S else max(seconds, 0.0)
