"""Reports that a Traccar server forwards: positions (`forward.url`, `forward.type=json`) and events
(`event.forward.url`).

A Traccar server supports about two hundred kinds of trackers.
"""

from __future__ import annotations

from typing import Any

from fieldagent.extensions.places.hub.tracker_kind import (
    KNOTS,
    TrackerKind,
    convert_speed,
    join_alarms,
    make_place,
    make_report,
    parse_accuracy,
    parse_document,
    parse_ident,
    parse_number,
    parse_optional_number,
    parse_time,
)
from fieldagent.http.guard import get_required_body
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.hub.field.trackers import TrackerReport


def parse_report(request: Request) -> TrackerReport | None:
    """Return the report of a position or an alarm. Return None for an event that is not an alarm,
    because its position is forwarded separately. Raises Problem 400 if the report is invalid.
    """
    document = parse_document(get_required_body(request))
    device, position, event = (
        _get_object(document, name) for name in ("device", "position", "event")
    )
    if not device:
        raise Problem(400, "the body must hold device and position, as Traccar forwards them")
    alarm = join_alarms(
        *(_get_object(each, "attributes").get("alarm") for each in (event, position))
    )
    if event and event.get("type") != "alarm" and not alarm:
        return None
    return make_report(
        parse_ident(device.get("uniqueId"), "device.uniqueId"),
        alarm,
        lambda: parse_time(position.get("fixTime") or event.get("eventTime"), "position.fixTime"),
        lambda: _read_place(position) if position.get("valid", True) else None,
        parse_accuracy(position.get("accuracy")),
    )


def _read_place(position: dict[str, Any]) -> dict[str, float] | None:
    return make_place(
        {
            "latitude": parse_number(position.get("latitude"), "position.latitude"),
            "longitude": parse_number(position.get("longitude"), "position.longitude"),
            "altitude": parse_optional_number(position.get("altitude")),
            "speedOverGround": convert_speed(parse_optional_number(position.get("speed")), KNOTS),
            "courseOverGround": parse_optional_number(position.get("course")),
        }
    )


def _get_object(document: Any, name: str) -> dict[str, Any]:
    """Return the member `name`, or an empty object if the member is missing or is not an object."""
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, dict) else {}


KIND = TrackerKind("traccar", "Traccar", ("POST",), parse_report)
