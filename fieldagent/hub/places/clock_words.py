"""Times as alarms about places tell them."""

from __future__ import annotations

from fieldagent.package.writing import clock_time, minutes_in_words


def moment_in_words(at: float, now: float) -> str:
    """Return it to the minute, with its day where that is not today's, in UTC."""
    day, clock = clock_time(at)[:16].split("T")
    return f"{clock} UTC" if day == clock_time(now)[:10] else f"{day} {clock} UTC"


def length_in_words(seconds: float) -> str:
    """Return how long it is, to the minute below it."""
    hours, minutes = divmod(int(max(0.0, seconds) // 60), 60)
    return (
        f"{hours} h {minutes} min"
        if hours and minutes
        else minutes_in_words(hours * 3_600 + minutes * 60)
    )
