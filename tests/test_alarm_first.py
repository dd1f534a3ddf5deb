"""An alarm is never refused, silenced or hidden because another part of its message is unreadable,
missing or unproved. This covers each way in which an alarm arrives, with unusual other content.
"""

from __future__ import annotations

from typing import Any

import pytest

from fieldagent.package.package import Location, Message, Waypoint
from fieldagent.package.reading import InvalidPackage, parse_package

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
def test_sos_of_a_program_is_accepted_without_its_unreadable_members(body: str, item: Any) -> None:
    unread: list[Any] = []
    package = parse_package((body % SOS).encode(), unread)
    assert package.sos and package.item == item
    assert unread and package.to is None
    with pytest.raises(InvalidPackage):
        parse_package((body % '"priority": 99').encode(), [])
