"""gpsd's JSON protocol (gpsd_json(5)): one object per line. The agent turns on the reports (WATCH),
and reads positions from them (TPV).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from fieldagent.package.coordinates import is_zero_position
from fieldagent.package.strict_json import NotJson, check_depth
from fieldagent.system.clock_bounds import LATEST_TIME
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import RemoteProtocolError

WATCH_COMMAND = b'?WATCH={"enable":true,"json":true};\n'
LINE_BYTES = 16_384
"""Maximum bytes of a line. gpsd's own lines have at most 10 240."""
PLAUSIBLE_YEARS = range(1980, 2106)
"""Plausible years, from the start of GPS time. A receiver that does not know the date may report
any year."""


class Fix(NamedTuple):
    """Position of the receiver: degrees, metres above mean sea level, m/s, degrees from true
    north.
    """

    time: float
    """Unix time from the satellites in seconds. 0 if the receiver does not know the date."""
    latitude: float
    longitude: float
    altitude: float | None = None
    speed: float | None = None
    course: float | None = None


class NoFix(NamedTuple):
    """The receiver works, but has too few satellites."""


GpsReport = Fix | NoFix | None
"""Report of a receiver, or None for any other line."""


def parse_line(line: bytes) -> GpsReport:
    """Parse a line of gpsd. Return None if it is not a position report. Raises RemoteProtocolError
    if the line is an ERROR, or is not from gpsd.
    """
    try:
        decoded = line.decode()
        check_depth(decoded)
        text = json.loads(decoded)
    except (ValueError, NotJson):
        raise RemoteProtocolError(f"no JSON: {line[:60]!r}") from None
    if not isinstance(text, dict):
        raise RemoteProtocolError(f"no object: {line[:60]!r}")
    if text.get("class") == "ERROR":
        raise RemoteProtocolError(f"gpsd reports: {text.get('message')}")
    return _read_position(text) if text.get("class") == "TPV" else None


def _read_position(report: dict[str, Any]) -> GpsReport:
    if report.get("mode") not in (2, 3):
        return NoFix()
    latitude, longitude = _get_number(report, "lat", -90, 90), _get_number(report, "lon", -180, 180)
    if latitude is None or longitude is None or is_zero_position(latitude, longitude):
        return NoFix()
    altitude = None
    if report["mode"] == 3:
        # Before version 3.20, gpsd had only `alt`, which is also above the sea.
        altitude = _get_number(report, "altMSL", -12_000, 100_000)
        altitude = _get_number(report, "alt", -12_000, 100_000) if altitude is None else altitude
    speed, course = _get_number(report, "speed", 0, 10_000), _get_number(report, "track", 0, 360)
    time = _read_time(report.get("time"))
    return Fix(time, latitude, longitude, altitude, speed, course)


def _get_number(report: dict[str, Any], name: str, minimum: float, maximum: float) -> float | None:
    value = report.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Compare before converting, because a large integer does not fit into a float. A NaN is outside
    # every range.
    return float(value) if minimum <= value <= maximum else None


def _read_time(text: Any) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return 0.0
    if moment.year not in PLAUSIBLE_YEARS:
        return 0.0
    time = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return time if time <= LATEST_TIME else 0.0
