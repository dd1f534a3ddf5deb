"""Traccar's forwarding of positions (`forward.url`, `forward.type=json`) and of events
(`event.forward.url`): one server brings some two hundred kinds of trackers."""

from __future__ import annotations

from typing import Any

from fieldagent.http.guard import required_body
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.hub.tracker.contract import (
    KNOTS,
    TrackerKind,
    TrackerReport,
    accuracy_of,
    document_of,
    faster,
    ident_of,
    number_of,
    place_of,
    time_of,
)


def read(request: Request) -> TrackerReport | None:
    """Return the report of a position or an alarm; none of another event, whose position comes by
    itself. Raises Problem 400."""
    document = document_of(required_body(request))
    device, position, event = (_object(document, name) for name in ("device", "position", "event"))
    if not device:
        raise Problem(400, "the body must hold device and position, as Traccar forwards them")
    if event and event.get("type") != "alarm":
        return None
    alarm = _object(event, "attributes").get("alarm") or _object(position, "attributes").get(
        "alarm"
    )
    return TrackerReport(
        ident_of(device.get("uniqueId"), "device.uniqueId"),
        time_of(position.get("fixTime") or event.get("eventTime"), "position.fixTime"),
        _place(position) if position.get("valid", True) else None,
        alarm if isinstance(alarm, str) else "",
        accuracy_of(position.get("accuracy")),
    )


def _place(position: dict[str, Any]) -> dict[str, float] | None:
    speed = number_of(position.get("speed"), "position.speed")
    return place_of(
        {
            "latitude": number_of(position.get("latitude"), "position.latitude"),
            "longitude": number_of(position.get("longitude"), "position.longitude"),
            "altitude": number_of(position.get("altitude"), "position.altitude"),
            "speedOverGround": faster(speed, KNOTS),
            "courseOverGround": number_of(position.get("course"), "position.course"),
        }
    )


def _object(document: Any, name: str) -> dict[str, Any]:
    """Return that member; empty where it is none, or no object."""
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, dict) else {}


KIND = TrackerKind("traccar", "Traccar", ("POST",), read)
