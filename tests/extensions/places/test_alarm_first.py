"""An alarm of a tracker is read even if another part of its report cannot be read.

`test_reports.py` has more cases, and `tests/hub/test_trackers.py` the hub's reaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fieldagent.extensions.places.hub.tracker_door import KINDS
from fieldagent.http.message import Request
from fieldagent.http.query import query_pairs


def is_tracker_alarm(kind: str, query: str = "", body: Any = None) -> bool:
    data = b"" if body is None else json.dumps(body).encode()
    head = {"content-length": str(len(data))} if data else {}
    request = Request("POST", "/", query_pairs(query), head, data)
    report = KINDS[kind].read(request)
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
        lambda: is_tracker_alarm("traccar", body=TWO_ALARMS),
        lambda: is_tracker_alarm("osmand", "id=1&lat=47.1&lon=8.1&altitude=NaN&alarm=sos"),
        lambda: is_tracker_alarm("osmand", "id=1&lat=47,1&lon=8,1&alarm=sos"),
        lambda: is_tracker_alarm("osmand", "id=1&lat=x&lon=&timestamp=noon&speed=-&alarm=SOS"),
        lambda: is_tracker_alarm("osmand", body={"device_id": "1", "alarm": ["tow", "sos"]}),
    ],
)
def test_tracker_alarm_is_read_despite_unreadable_parts(is_alarm: Callable[[], bool]) -> None:
    assert is_alarm()
