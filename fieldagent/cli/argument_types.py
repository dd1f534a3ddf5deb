"""Types of arguments for argparse. A type raises ArgumentTypeError if the value is invalid. A type
whose `__name__` describes the valid values raises ValueError instead.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fieldagent.system.span import read_span

DAYS_MAX = 36_500
"""Maximum number of days for which a key is valid: a hundred years."""


def make_integer_reader(low: int, high: int) -> Callable[[str], int]:
    """Return a function that parses an integer from `low` to `high`, both included. The function
    raises ArgumentTypeError for any other text.
    """

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from {low} to {high}")
        return number

    return read


def read_integer(text: str) -> int:
    """Parse an integer. Raises ValueError for any other text."""
    return int(text)


read_integer.__name__ = "a whole number"
count = make_integer_reader(1, 1_000_000)
port = make_integer_reader(0, 65_535)


def read_seconds(text: str) -> float:
    """Parse a number of seconds, 0 or more. Raises ArgumentTypeError for any other text."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1e9:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of seconds, such as 2.5")
    return number


def read_positive(value: str) -> float:
    """Parse a number above 0. Raises ArgumentTypeError for any other text."""
    if not 0 < float(value) < 1e12:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number above 0")
    return float(value)


def read_decimal(text: str) -> float:
    """Parse a number such as `2450.5`, or `2450,5` as in many languages. `2,450` is refused,
    because it is ambiguous. Raises ArgumentTypeError for any other text.
    """
    if match := re.fullmatch(r"([+-]?\d+),(\d{1,2})", text, re.ASCII):
        text = f"{match[1]}.{match[2]}"
    try:
        return float(text)
    except ValueError:
        explanation = f"{text!r} is not a number such as 2450.5 or 2450,5"
        raise argparse.ArgumentTypeError(explanation) from None


def read_duration(text: str) -> float:
    """Parse a duration such as 90m, 12h or 2d, and return its seconds. The minimum is 5 minutes.
    Raises ArgumentTypeError for any other text.
    """
    number, unit = text[:-1], {"m": 60.0, "h": 3600.0, "d": 86_400.0}.get(text[-1:])
    seconds = float(number) * unit if unit and number.replace(".", "", 1).isdecimal() else 0.0
    if not 300 <= seconds <= 366 * 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: use 90m, 12h or 2d, from 5m")
    return seconds


def read_minute(text: str) -> int:
    """Parse a time of day such as 06:30, and return the minutes since midnight. Raises ValueError
    for any other text.
    """
    hour, minute = text.split(":")
    if not (0 <= int(hour) < 24 and 0 <= int(minute) < 60):
        raise ValueError
    return int(hour) * 60 + int(minute)


def read_wait(text: str) -> int:
    """Parse a duration such as 90s, 5m or 2h, from 10 s to a week, and return its seconds. Raises
    ValueError for any other text.
    """
    seconds = read_span(text)
    if seconds is None or not 10 <= seconds <= 604_800:
        raise ValueError
    return seconds


read_wait.__name__ = "a time such as 30s, 5m or 2h, from 10s to 168h"
read_minute.__name__ = "a time of day such as 18:00"


def read_row_id(text: str) -> int:
    """Parse the id of a database row, of at most 18 digits. Raises ValueError for any other
    text.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError
    return int(text)


read_row_id.__name__ = "a number that `list` shows"


def read_credit_count(text: str) -> int:
    """Parse a number of credits, of at most 9 digits. Raises ValueError for any other text."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValueError
    return int(text)


read_credit_count.__name__ = "a number of credits, from 0 on"


def read_days(text: str) -> float:
    """Parse the number of days for which a key is valid. Raises ArgumentTypeError for any other
    text.
    """
    if not 0 < float(text) <= DAYS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, {DAYS_MAX} at most")
    return float(text)


read_days.__name__ = "a number of days"
read_positive.__name__ = "a number above 0"


def read_day(text: str) -> str:
    """Parse a day such as 2026-09-21. Raises ValueError for any other text."""
    from datetime import date  # Import it only here, because other commands do not need it.

    return date.fromisoformat(text).isoformat()


def read_pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Parse a list such as imei=Device,credits=Used. Raises ValueError for any other text."""
    split = [each.split("=", 1) for each in text.split(",")]
    return tuple((what.strip(), name.strip()) for what, name in split)


def read_setting(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE. Raises ArgumentTypeError for any other text."""
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting; use NAME=VALUE")
    return name, value


read_day.__name__ = "a day such as 2026-09-21"
read_pairs.__name__ = "a list such as imei=Device,credits=Used"

TYPES: Mapping[str, Callable[[str], Any]] = {
    "channel": str.capitalize,
    "count": count,
    "credits": read_credit_count,
    "day": read_day,
    "days": read_days,
    "decimal": read_decimal,
    "duration": read_duration,
    "int": read_integer,
    "minute": read_minute,
    "number": read_row_id,
    "pairs": read_pairs,
    "path": Path,
    "port": port,
    "positive": read_positive,
    "seconds": read_seconds,
    "setting": read_setting,
    "wait": read_wait,
}
"""Types by their names in a table of commands."""
