"""Incoming payloads: one sender and one event, in the JSON format of the interface document,
"Inbound payload".
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from fieldagent.package.package import (
    Data,
    IncidentState,
    IncidentUpdate,
    Item,
    Location,
    Message,
    Waypoint,
)
from fieldagent.package.writing import format_timestamp
from fieldagent.system.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """Sender of an item. `type` is `User`, `Device`, `Integration` or `Resource`."""

    id: str
    name: str = ""
    type: str = "User"
    email: str = ""
    account: str = ""


def make_unknown_identity(origin: int) -> Identity:
    """Return an identity for a sender without an introduction. `origin` 0 is the other end of the
    link, and a negative number is a station on the air.
    """
    kind = "Integration" if origin == 0 else "Device" if origin < 0 else "User"
    return Identity(str(abs(origin)), type=kind)


SOS_MARK = '"sos":true'
"""String that the compact JSON of an SOS event contains. A text in the JSON cannot contain it,
because quotes in JSON strings are escaped."""


ALARM_MARK = '"alarm":"'
"""String that the compact JSON of an event for one of the hub's own alarms contains. The kind of
alarm follows it."""
UNAUTHENTICATED_MARK = '"unauthenticated":true'
"""String that the compact JSON of an unauthenticated SOS event contains."""


def encode_payload(
    request_id: str,
    sender: Identity,
    item: Item,
    timestamp: datetime,
    *,
    sos: bool = False,
    extra: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Return a payload as compact JSON. The text is ASCII, so that it can be an environment
    variable in any locale. `extra` contains additional members of the event.
    """
    members = make_event(item, timestamp) | dict(extra) | ({"sos": True} if sos else {})
    return encode_event(request_id, sender, members)


def encode_event(request_id: str, sender: Identity, members: Mapping[str, Any]) -> str:
    """Return a payload as compact JSON, as `encode_payload` does, with an event of these `members`,
    which was not made from an item.
    """
    document = {
        "requestId": request_id,
        "payloads": [
            {
                "identity": {
                    "id": sender.id,
                    "name": sender.name,
                    "type": sender.type,
                    "email": sender.email,
                },
                "account": {"id": sender.account},
                "events": [members],
            }
        ],
    }
    return json.dumps(document, separators=(",", ":"))


def make_event(item: Item, timestamp: datetime) -> dict[str, Any]:
    """Return an item as the event of a payload: `type`, `timestamp`, and its members that are not
    None.
    """
    write = _EVENTS[type(item)]
    members = {"type": type(item).__name__, "timestamp": format_timestamp(timestamp), **write(item)}
    return {name: value for name, value in members.items() if value is not None}


def _format_degrees(degrees: float) -> str:
    """Return decimal degrees as text, with the seven decimals of the on-air format."""
    return f"{degrees:.7f}".rstrip("0").rstrip(".")


def make_estimated_position(latitude: float, longitude: float, radius: int) -> dict[str, Any]:
    """Return the position that the satellite operator has estimated, with its `radius` in
    kilometres. The member `by` shows that it is not from the sender.
    """
    return {
        "latitude": _format_degrees(latitude),
        "longitude": _format_degrees(longitude),
        "radius": radius * 1000,
        "by": "operator",
    }


def _make_location(item: Location) -> dict[str, Any]:
    return {
        "latitude": _format_degrees(item.latitude),
        "longitude": _format_degrees(item.longitude),
        "altitude": item.altitude,
        "speedOverGround": item.speed_over_ground,
        "courseOverGround": item.course_over_ground,
    } | ({} if item.source is None else {"source": item.source})


def _make_waypoint(item: Waypoint) -> dict[str, Any]:
    return {
        "latitude": _format_degrees(item.latitude),
        "longitude": _format_degrees(item.longitude),
        "name": item.name,
        "notes": item.notes,
    }


def describe_incident_update(update: IncidentUpdate) -> str:
    """Return an incident update as a sentence for people."""
    person = update.by or "somebody"
    state_texts = {
        IncidentState.OPEN: "SOS open",
        IncidentState.SEEN: f"SOS seen by {person}",
        IncidentState.CLOSED: f"SOS closed by {person}",
        IncidentState.CALLED_OFF: "SOS called off",
    }[update.state]
    return f"{state_texts}: {update.text}" if update.text else state_texts


def _make_incident_update(update: IncidentUpdate) -> dict[str, Any]:
    """Return an incident update as a Message, so that programs without support for incidents show
    its text.
    """
    number = {"number": update.incident, "state": update.state.value}
    details = {
        "device": str(update.station) if update.station else None,
        "by": update.by,
        "text": update.text,
    }
    incident = number | {name: value for name, value in details.items() if value}
    return {"type": "Message", "content": describe_incident_update(update), "incident": incident}


_EVENTS: dict[type[Item], Callable[[Any], dict[str, Any]]] = {
    Message: lambda item: {"content": item.content},
    Location: _make_location,
    Waypoint: _make_waypoint,
    Data: lambda item: {"payload": base64.b64encode(item.payload).decode()},
    IncidentUpdate: _make_incident_update,
}
