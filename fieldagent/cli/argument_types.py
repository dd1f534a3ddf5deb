"""Types of arguments of the hub's commands. Each raises ValueError for an invalid value; its
`__name__` describes the valid ones.
"""

from __future__ import annotations

from collections.abc import Callable

from fieldagent.system.span import read_span


def minute(text: str) -> int:
    """Read a time of day such as 06:30, and return the minutes since midnight. Raises
    ValueError."""
    hour, minute = text.split(":")
    if not (0 <= int(hour) < 24 and 0 <= int(minute) < 60):
        raise ValueError
    return int(hour) * 60 + int(minute)


def _up_to(most: int, what: str) -> Callable[[str], int]:
    """Return a reader of a number from 1 to `most`. `what` is the plural noun for errors."""

    def read(text: str) -> int:
        number = int(text)
        if not 1 <= number <= most:
            raise ValueError
        return number

    read.__name__ = f"number of {what} from 1 to {most}"
    return read


def wait(text: str) -> int:
    """Read a duration such as 90s, 5m or 2h, from 10 s to a week, and return its seconds. Raises
    ValueError.
    """
    seconds = read_span(text)
    if seconds is None or not 10 <= seconds <= 604_800:
        raise ValueError
    return seconds


def watch_hours(text: str) -> tuple[int, int] | None:
    """Read watch hours and return the minutes of the day of their begin and end. Both are equal for
    `always`. None for `none`.
    """
    if text in ("always", "none"):
        return (0, 0) if text == "always" else None
    begins, ends = text.split("-")
    return minute(begins), minute(ends)


watch_hours.__name__ = "hours such as 06:00-22:00, always or none"
wait.__name__ = "time such as 30s, 5m or 2h, from 10s to 168h"
minute.__name__ = "time of day such as 18:00"

minutes = _up_to(10_080, "minutes")
batch = _up_to(100, "items")
tries = _up_to(20, "tries")
