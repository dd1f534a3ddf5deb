"""Kinds of third-party trackers, and functions that parse their reports.

A kind is a module with a `TrackerKind`, which `tracker_door` lists. A kind only parses reports, and
`hub.field.trackers` processes them. docs/how-to/trackers.md lists the kinds and explains how each
report is processed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any, TypeVar

from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.hub.field.trackers import TrackerReport
from fieldagent.package.coordinates import is_zero_position, parse_decimal
from fieldagent.package.reading import ITEMS, WrongValue
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.system.lazy_named_tuple import NamedTuple

_Part = TypeVar("_Part")
KNOTS, KMH = 0.514444, 1 / 3.6
"""Factors that convert a speed to metres per second."""
IDENT_MAX = 100
"""Largest number of characters of the id that a tracker reports."""


class TrackerKind(NamedTuple):
    name: str
    """Name of the kind. It is also the last but one segment of the address's path."""
    title: str
    methods: tuple[str, ...]
    read: Callable[[Request], TrackerReport | None]
    """Returns the report in a request, or None if the request contains neither a position nor an
    alarm. Raises Problem 400 with the error and the expected form."""
    answer: bytes = b""
    """Body of the response that the tracker expects: JSON, or empty."""


def parse_document(body: bytes) -> Any:
    """Parse the JSON in a body. Raises Problem 400 if the body is not JSON."""
    try:
        return load_document(body)
    except NotJson as error:
        raise Problem(400, str(error)) from None


def parse_number(value: Any, name: str) -> float | None:
    """Return a number that is a JSON number or a text with a decimal point or comma, or None if it
    is missing.

    Raises Problem 400 for any other value.
    """
    if value is None or value == "":
        return None
    try:
        number = parse_decimal(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if isinstance(value, bool) or not isfinite(number):
        raise Problem(400, f"{name} must be a number, not {str(value)[:40]!r}")
    return number


def parse_optional_number(value: Any) -> float | None:
    """Return an optional number of a report, or None if it is missing or invalid."""
    try:
        return parse_number(value, "")
    except Problem:
        return None


def join_alarms(*values: Any) -> str:
    """Return all alarms of a report, separated by commas. Each value is a text, a list or another
    JSON value.
    """
    alarm_words: list[str] = []
    for value in values:
        each = value if isinstance(value, list) else [value]
        alarm_words += [str(word) for word in each if word not in (None, "", 0)]
    return ",".join(dict.fromkeys(alarm_words))


def make_report(
    ident: str,
    alarm: str,
    at: Callable[[], datetime | None],
    place: Callable[[], dict[str, float] | None],
    accuracy: float,
) -> TrackerReport:
    """Return a report. `at` and `place` return its time and position, and raise Problem 400.

    Without an alarm, such an error rejects the report. If there is an alarm, the report is accepted
    without the invalid part, and its `unread` contains the error.
    """
    faults: list[str] = []

    def read(part: Callable[[], _Part | None]) -> _Part | None:
        try:
            return part()
        except Problem as fault:
            if not alarm:
                raise
            faults.append(str(fault.detail))
            return None

    return TrackerReport(ident, read(at), read(place), alarm, accuracy, "; ".join(faults))


def parse_ident(value: Any, name: str) -> str:
    """Return the id that a tracker reports. Raises Problem 400 for any other value."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip() or len(value) > IDENT_MAX:
        raise Problem(400, f"{name} must be 1 to {IDENT_MAX} characters: the tracker's id")
    return value.strip()


_MILLISECONDS = 1e11
"""Largest value for Unix seconds. Higher numbers are milliseconds, because in seconds they would be
after the year 5138."""


def parse_time(value: Any, name: str) -> datetime | None:
    """Return the time from Unix seconds, Unix milliseconds, or an ISO 8601 text. Return None if it
    is missing or outside the years 2000 to 2100. Raises Problem 400 for any other value.
    """
    if value is None or value == "":
        return None
    try:
        if isinstance(value, str) and not value.lstrip("-").replace(".", "", 1).isdigit():
            moment = datetime.fromisoformat(value)
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        else:
            seconds = parse_number(value, name) or 0.0
            seconds = seconds / 1000 if seconds > _MILLISECONDS else seconds
            moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        raise Problem(400, f"{name} must be Unix seconds or an ISO 8601 time") from None
    return moment if 2000 <= moment.year <= 2100 else None


_READ = {name: field.read for name, field in ITEMS["location"].members.items()}
_NEEDED = ("latitude", "longitude")


def make_place(values: Mapping[str, float | None]) -> dict[str, float] | None:
    """Return the fields of a location. Return None if latitude or longitude is missing, or if both
    are 0, which a receiver without a fix sends.

    Other fields that are out of range are left out, so that a wrong altitude does not invalidate
    the position. Raises Problem 400 if latitude or longitude is out of range.
    """
    at = [values.get(name) for name in _NEEDED]
    latitude, longitude = at
    if latitude is None or longitude is None or is_zero_position(latitude, longitude):
        return None
    place = {}
    for name, value in values.items():
        if value is None:
            continue
        try:
            place[name] = float(_READ[name](value))
        except WrongValue as wrong:
            if name in _NEEDED:
                raise Problem(400, f"{name} {wrong}, not {value:g}") from None
    return place


def parse_accuracy(value: Any) -> float:
    """Return the accuracy in metres, or 0 if it is missing or invalid."""
    return max(0.0, parse_optional_number(value) or 0.0)


def convert_speed(value: float | None, unit: float) -> float | None:
    """Convert a speed to metres per second. `unit` is the factor. Return None if the speed is
    missing.
    """
    return None if value is None else value * unit
