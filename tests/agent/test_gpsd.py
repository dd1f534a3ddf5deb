"""The position of an SOS, from each report of a receiver."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fieldagent.agent.gpsd import make_location
from fieldagent.wire.gpsd import Fix, parse_line

TPV = '{"class":"TPV","device":"/dev/ttyUSB0","mode":3,%s"lat":47.2,"lon":8.5,"altMSL":400.0}'


@pytest.mark.parametrize(
    ("time", "date"),
    [
        ("", None),
        ('"time":"2046-07-15T09:02:43.000Z",', None),
        ('"time":"2007-04-06T09:02:43.000Z",', None),
        ('"time":"2026-11-20T10:00:10.000Z",', datetime(2026, 11, 20, 10, 0, 10, tzinfo=UTC)),
    ],
    ids=["no date", "1024 weeks too late", "1024 weeks too early", "dated"],
)
def test_position_of_sos_omits_impossible_date(time: str, date: datetime | None) -> None:
    """The agent adds a date to a position without one when it accepts it."""
    fix = parse_line((TPV % time).encode())
    assert isinstance(fix, Fix)
    where = make_location(fix)
    assert (where.latitude, where.longitude, where.timestamp) == (47.2, 8.5, date)
