"""Reports that a Traccar server forwards: positions (`forward.url`, `forward.type=json`) and events
(`event.forward.url`).

A Traccar server supports about two hundred kinds of trackers.
"""

from __future__ import annotations

from typing import Any

from fieldagent.extensions.places.hub.tracker_kind import (
    KNOTS,
    TrackerKind,
    accuracy_of,
    alarm_of,
    document_of,
    faster,
    ident_of,
    measure_of,
    number_of,
    place_of,
    report_of,
    time_of,
)
from fieldagent.http.guard import get_required_body
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.hub.field.trackers import TrackerReport


def read(request: Request) -> TrackerReport | None:
    """Return the report of a position or an alarm. Return None for an event that is not an alarm,
    because its position is forwarded separately. Raises Problem 400.
    """
    document = document_of(get_required_body(request))
    device, position, event = (_object(document, name) for name in ("device", "position", "event"))
    if not device:
        raise Problem(400, "the body must hold device and position, as Traccar forwards them")
    alarm = alarm_of(*(_object(each, "attributes").get("alarm") for each in (event, position)))
    if event and event.get("type") != "alarm" and not alarm:
        return None
    return report_of(
        ident_of(device.get("uniqueId"), "device.uniqueId"),
        alarm,
        lambda: time_of(position.get("fixTime") or event.get("eventTime"), "position.fixTime"),
        lambda: _place(position) if position.get("valid", True) else None,
        accuracy_of(position.get("accuracy")),
    )


def _place(position: dict[str, Any]) -> dict[str, float] | None:
    return place_of(
        {
            "latitude": number_of(position.get("latitude"), "position.latitude"),
            "longitude": number_of(position.get("longitude"), "position.longitude"),
            "altitude": measure_of(position.get("altitude")),
            "speedOverGround": faster(measure_of(position.get("speed")), KNOTS),
            "courseOverGround": measure_of(position.get("course")),
        }
    )


def _object(document: Any, name: str) -> dict[str, Any]:
    """Return the member `name`, or an empty object if the member is missing or is not an object."""
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, dict) else {}


KIND = TrackerKind("traccar", "Traccar", ("POST",), read)
