"""Durations in the form that people write: `30s`, `5m`, `2h`. A number without a unit means
minutes.
"""

from __future__ import annotations

import re

_SPAN = re.compile(r"([0-9]{1,6})([smh]?)", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "": 60, "h": 3_600}


def read_span(text: str) -> int | None:
    """Return the seconds, or None if the text is not a duration."""
    match = _SPAN.fullmatch(text)
    return None if match is None else int(match[1]) * _SECONDS[match[2]]


def format_span(seconds: int) -> str:
    """Return the duration in the largest unit that is exact: `90s`, `5m`."""
    unit = next(each for each in "hms" if seconds % _SECONDS[each] == 0) if seconds else "s"
    return f"{seconds // _SECONDS[unit]}{unit}"
