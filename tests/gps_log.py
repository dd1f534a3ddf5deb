"""NMEA 0183 as a receiver writes it: a fix for each second of a track."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

BEGIN = datetime(2026, 11, 20, 10, 0, 0, tzinfo=UTC)


def nmea(way: Iterable[tuple[float, float, float]]) -> str:
    """Return the NMEA sentences of a track. `way` contains latitude, longitude (north and east) and
    speed in m/s for each second.
    """
    return "".join(_sentences(way))


def _sentences(way: Iterable[tuple[float, float, float]]) -> Iterator[str]:
    for second, (latitude, longitude, speed) in enumerate(way):
        at = BEGIN + timedelta(seconds=second)
        place = f"{_angle(latitude, 2)},N,{_angle(longitude, 3)},E"
        yield _sentence(f"GPGGA,{at:%H%M%S},{place},1,08,0.9,545.4,M,46.9,M,,")
        knots = speed / 0.514444
        yield _sentence(f"GPRMC,{at:%H%M%S},A,{place},{knots:05.1f},084.4,{at:%d%m%y},,")


def _angle(degrees: float, digits: int) -> str:
    whole = int(degrees)
    return f"{whole:0{digits}d}{(degrees - whole) * 60:07.4f}"


def _sentence(body: str) -> str:
    guard = 0
    for character in body:
        guard ^= ord(character)
    return f"${body}*{guard:02X}\r\n"
