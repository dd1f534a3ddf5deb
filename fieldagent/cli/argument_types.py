"""What arguments of the hub's commands may be: each raises ValueError for what is none, and its
name says what would be."""

from __future__ import annotations

from fieldagent.system.span import read_span


def minute(text: str) -> int:
    hour, minute = text.split(":")
    if not (0 <= int(hour) < 24 and 0 <= int(minute) < 60):
        raise ValueError
    return int(hour) * 60 + int(minute)


def minutes(text: str) -> int:
    minutes = int(text)
    if not 1 <= minutes <= 10_080:
        raise ValueError
    return minutes


def batch(text: str) -> int:
    items = int(text)
    if not 1 <= items <= 100:
        raise ValueError
    return items


def tries(text: str) -> int:
    tries = int(text)
    if not 1 <= tries <= 20:
        raise ValueError
    return tries


def wait(text: str) -> int:
    seconds = read_span(text)
    if seconds is None or not 10 <= seconds <= 604_800:
        raise ValueError
    return seconds


wait.__name__ = "time such as 30s, 5m or 2h, from 10s to 168h"
tries.__name__ = "number of tries from 1 to 20"
batch.__name__ = "number of items from 1 to 100"
minutes.__name__ = "number of minutes from 1 to 10080"
minute.__name__ = "time of day such as 18:00"
