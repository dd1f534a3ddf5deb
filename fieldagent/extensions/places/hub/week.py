"""Weeks according to ISO 8601. A week begins on Monday, in UTC."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import sentence

_WEEK = re.compile(r"([0-9]{4})-W([0-9]{2})", re.ASCII)
GAP_MIN_S, GAP_FACTOR = 900.0, 3.0
"""A pause in a track is a gap if it is longer than GAP_MIN_S seconds and longer than GAP_FACTOR
times the median pause."""


class WrongWeek(ValueError):
    """Error: the week is invalid. The text contains the error and the fix."""


class Week(NamedTuple):
    name: str
    """Name such as 2026-W47."""
    begins: float
    ends: float
    """Unix time of the end. This moment belongs to the next week."""

    @property
    def days(self) -> tuple[str, str]:
        """Return the first and the last day of the week."""
        monday = datetime.fromtimestamp(self.begins, UTC).date()
        return monday.isoformat(), (monday + timedelta(days=6)).isoformat()


def parse_week(text: str) -> Week:
    """Return the week with a name such as 2026-W48. Raises WrongWeek for any other text."""
    match = _WEEK.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        monday = date.fromisocalendar(int(match[1]), int(match[2]), 1)
        return _make_week(monday)
    except (ValueError, OverflowError):
        raise WrongWeek(
            sentence(
                "{text} is not a week: use an ISO 8601 week such as 2026-W47",
                text=repr(text[:20]),
            )
        ) from None


def find_week(moment: float) -> Week:
    """Return the week that contains a Unix time."""
    day = datetime.fromtimestamp(moment, UTC).date()
    return _make_week(day - timedelta(days=day.weekday()))


def _make_week(monday: date) -> Week:
    year, number, _ = monday.isocalendar()
    starts_at = datetime(monday.year, monday.month, monday.day, tzinfo=UTC)
    ends = starts_at + timedelta(days=7)  # The end of 9999-W52 is after the last possible date.
    return Week(f"{year}-W{number:02}", starts_at.timestamp(), ends.timestamp())


def compute_longest_pause(times: Sequence[float]) -> float:
    """Return the length in seconds of the longest pause that is not a gap. This is three times the
    median pause between two positions of the track, but at least 15 minutes.
    """
    pauses = sorted(after - before for before, after in pairwise(times))
    return max(GAP_MIN_S, GAP_FACTOR * pauses[len(pauses) // 2]) if pauses else GAP_MIN_S
