"""A tracker of somebody else's, as the hub sees it: what brings its reports, and what they say.

A kind is one module with a `TrackerKind`, named in `known.KINDS`. It reads reports and decides
nothing: `intake` does. Which there are, and what becomes of each report, is in docs/trackers.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any, TypeVar

from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.package.coordinates import is_nowhere
from fieldagent.package.reading import ITEMS, WrongValue
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.system.lazy_named_tuple import NamedTuple

_Part = TypeVar("_Part")
KNOTS, KMH = 0.514444, 1 / 3.6
"""Of a speed, in m/s."""
IDENT_MAX = 100
"""Characters of the name that a tracker has for itself."""


class TrackerReport(NamedTuple):
    """What a tracker said once."""

    ident: str
    """What it calls itself."""
    at: datetime | None = None
    """When it was there; None: now."""
    place: Mapping[str, float] | None = None
    """Members of a location (`package.reading`), in its units; None: it had no position."""
    alarm: str = ""
    """Such as `sos`, in the sender's own words; commas separate several (`alarm_of`)."""
    accuracy: float = 0.0
    """Metres by which the position may be wrong; 0: it does not say."""
    unread: str = ""
    """Faults in the rest of an alarm, for people; empty if there are none."""


class TrackerKind(NamedTuple):
    name: str
    """The last but one part of its address."""
    title: str
    methods: tuple[str, ...]
    read: Callable[[Request], TrackerReport | None]
    """Returns what a request reports, None where that is nothing of a place or an alarm. Raises
    Problem 400 with what is wrong and how it should be."""
    answer: bytes = b""
    """What it takes for an answer: JSON, or nothing."""


def document_of(body: bytes) -> Any:
    """Return what a body holds as JSON. Raises Problem 400."""
    try:
        return load_document(body)
    except NotJson as error:
        raise Problem(400, f"the body is not JSON: {error}") from None


def number_of(value: Any, name: str) -> float | None:
    """Return a number, written as one or as text, also with a decimal comma; None where there is
    none.

    Raises Problem 400.
    """
    if value is None or value == "":
        return None
    try:
        number = float(value.replace(",", ".") if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if isinstance(value, bool) or not isfinite(number):
        raise Problem(400, f"{name} must be a number, not {str(value)[:40]!r}")
    return number


def measure_of(value: Any) -> float | None:
    """Return a number that a report can do without; None also for what is no number."""
    try:
        return number_of(value, "")
    except Problem:
        return None


def alarm_of(*values: Any) -> str:
    """Return all alarms of a report, with commas between them. Each value is a text, a list or
    another JSON value."""
    words: list[str] = []
    for value in values:
        each = value if isinstance(value, list) else [value]
        words += [str(word) for word in each if word not in (None, "", 0)]
    return ",".join(dict.fromkeys(words))


def report_of(
    ident: str,
    alarm: str,
    at: Callable[[], datetime | None],
    place: Callable[[], dict[str, float] | None],
    accuracy: float,
) -> TrackerReport:
    """Return a report. `at` and `place` read its time and position, and raise Problem 400.

    Such a fault refuses a report without an alarm. An alarm goes on without that part, and its
    `unread` names the fault.
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


def ident_of(value: Any, name: str) -> str:
    """Return what a tracker calls itself. Raises Problem 400."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip() or len(value) > IDENT_MAX:
        raise Problem(400, f"{name} must be 1 to {IDENT_MAX} characters: which tracker it is")
    return value.strip()


_MILLISECONDS = 1e11
"""Numbers beyond it are no Unix seconds: they would be of the year 5138."""


def time_of(value: Any, name: str) -> datetime | None:
    """Return a time: Unix seconds or milliseconds, or ISO 8601; None where there is none, or one
    that no clock should show. Raises Problem 400."""
    if value is None or value == "":
        return None
    try:
        if isinstance(value, str) and not value.lstrip("-").replace(".", "", 1).isdigit():
            moment = datetime.fromisoformat(value)
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        else:
            seconds = number_of(value, name) or 0.0
            seconds = seconds / 1000 if seconds > _MILLISECONDS else seconds
            moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        raise Problem(400, f"{name} must be Unix seconds or an ISO 8601 time") from None
    return moment if 2000 <= moment.year <= 2100 else None


_READ = {name: field.read for name, field in ITEMS["location"].members.items()}
_NEEDED = ("latitude", "longitude")


def place_of(values: Mapping[str, float | None]) -> dict[str, float] | None:
    """Return the members of a location that are there; None where it has no latitude and longitude,
    or both are 0, as of a receiver that has found nothing yet. Of the others, what is out of bounds
    is left out: a receiver's nonsense about its height must not cost its position.

    Raises Problem 400 for a latitude or longitude out of bounds.
    """
    at = [values.get(name) for name in _NEEDED]
    latitude, longitude = at
    if latitude is None or longitude is None or is_nowhere(latitude, longitude):
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


def accuracy_of(value: Any) -> float:
    """Return metres, 0 where they are not told or make no sense."""
    return max(0.0, measure_of(value) or 0.0)


def faster(value: float | None, unit: float) -> float | None:
    """Return a speed in m/s; None where there is none."""
    return None if value is None else value * unit
