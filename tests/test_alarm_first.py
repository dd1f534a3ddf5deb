"""An alarm is never refused, silenced or hidden because another part of its message is unreadable,
missing or unproved. This covers each way in which an alarm arrives, with unusual other content.

Trackers have more cases in `tests/hub/tracker`, which also test the hub's reaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fieldagent.http.message import Request
from fieldagent.http.target import query_pairs
from fieldagent.hub.tracker.registry import tracker_kinds
from fieldagent.package.package import Location, Message, Waypoint
from fieldagent.package.reading import InvalidPackage, parse_package


def of_tracker(kind: str, query: str = "", body: Any = None) -> bool:
    data = b"" if body is None else json.dumps(body).encode()
    head = {"content-length": str(len(data))} if data else {}
    request = Request("POST", "/", query_pairs(query), head, data)
    report = tracker_kinds()[kind].read(request)
    return report is not None and "sos" in report.alarm.casefold()


TWO_ALARMS = {
    "position": {
        "fixTime": "2026-11-29T09:23:18.000+00:00",
        "latitude": 46.1,
        "longitude": 7.1,
        "attributes": {"alarm": "lowBattery,sos", "batteryLevel": 4},
    },
    "device": {"uniqueId": "100000000000001"},
}


@pytest.mark.parametrize(
    "is_alarm",
    [
        lambda: of_tracker("traccar", body=TWO_ALARMS),
        lambda: of_tracker("osmand", "id=1&lat=47.1&lon=8.1&altitude=NaN&alarm=sos"),
        lambda: of_tracker("osmand", "id=1&lat=47,1&lon=8,1&alarm=sos"),
        lambda: of_tracker("osmand", "id=1&lat=x&lon=&timestamp=noon&speed=-&alarm=SOS"),
        lambda: of_tracker("osmand", body={"device_id": "1", "alarm": ["tow", "sos"]}),
    ],
)
def test_an_alarm_is_read_in_odd_company(is_alarm: Callable[[], bool]) -> None:
    assert is_alarm()


SOS = '"priority": 100'
PACKAGES: list[tuple[str, Any]] = [
    ('{"message": {"content": "leg broken"}, "timeToLive": 0, %s}', Message("leg broken")),
    ('{"message": {"content": "x"}, "channels": ["Pigeon"], "by": [], %s}', Message("x")),
    ('{"message": {"content": "x"}, "colour": 1, "from": 0, "to": {}, %s}', Message("x")),
    ('{"message": {"content": "x", "font": 1}, "id": "one", %s}', Message("x")),
    (
        '{"location": {"latitude": 47.1, "longitude": "8,1", "altitude": "NaN"}, %s}',
        Location(47.1, 8.1),
    ),
    ('{"location": {"latitude": 147.1, "longitude": 8.1}, %s}', Message("SOS")),
    ('{"message": {"content": "x"}, "location": {"latitude": 1}, %s}', Message("x")),
    (
        '{"location": {"latitude": 1, "longitude": 2}, "message": {"content": "x"}, %s}',
        Message("x"),
    ),
    (
        '{"waypoint": {"latitude": 1, "longitude": 2, "name": "Hut", "notes": 3}, %s}',
        Waypoint(1.0, 2.0, "Hut"),
    ),
    ('{"message": {}, %s}', Message("SOS")),
    ('{"message": "x", %s}', Message("SOS")),
    ("{%s}", Message("SOS")),
]


@pytest.mark.parametrize(("body", "item"), PACKAGES)
def test_an_sos_of_a_program_goes_without_what_cannot_be_read(body: str, item: Any) -> None:
    unread: list[Any] = []
    package = parse_package((body % SOS).encode(), unread)
    assert package.sos and package.item == item
    assert unread and package.to is None
    with pytest.raises(InvalidPackage):
        parse_package((body % '"priority": 99').encode(), [])
