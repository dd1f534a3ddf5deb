"""Texts for times in alarms about places."""

from __future__ import annotations

from fieldagent.package.writing import format_clock_time, format_minutes


def format_time(at: float, now: float) -> str:
    """Return a time in UTC, to the minute. If the day is not today, the text contains the day."""
    day, clock = format_clock_time(at)[:16].split("T")
    return f"{clock} UTC" if day == format_clock_time(now)[:10] else f"{day} {clock} UTC"


def format_duration(seconds: float) -> str:
    """Return a duration as text, rounded down to the minute."""
    hours, minutes = divmod(int(max(0.0, seconds) // 60), 60)
    return (
        f"{hours} h {minutes} min"
        if hours and minutes
        else format_minutes(hours * 3_600 + minutes * 60)
    )
