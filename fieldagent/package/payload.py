"""What comes in: one payload with its sender and its one event, in the JSON of the interface
document, "Inbound payload"."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from fieldagent.package.package import (
    Data,
    IncidentWord,
    Item,
    Location,
    Message,
    Said,
    Waypoint,
)
from fieldagent.package.writing import write_timestamp
from fieldagent.system.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sent it. `type` is one of User, Device, Integration, Resource."""

    id: str
    name: str = ""
    type: str = "User"
    email: str = ""
    account: str = ""


def stranger(origin: int) -> Identity:
    """Return the identity of somebody who was not introduced: 0 is the far end of the link itself,
    below it are stations on the air."""
    kind = "Integration" if origin == 0 else "Device" if origin < 0 else "User"
    return Identity(str(abs(origin)), type=kind)


SOS_MARK = '"sos":true'
"""How the event of an SOS differs from any other in the compact JSON. No text can hold it, as
quotes within a JSON string are escaped."""


UNAUTHENTICATED_MARK = '"unauthenticated":true'
"""The same of one of which nobody has proved that it is its sender's."""


def payload_json(
    request_id: str,
    sender: Identity,
    item: Item,
    timestamp: datetime,
    *,
    sos: bool = False,
    extra: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Compact JSON of one delivery; ASCII, so that it fits an environment variable. `extra` are
    further members of its event."""
    members = event(item, timestamp) | dict(extra) | ({"sos": True} if sos else {})
    return event_json(request_id, sender, members)


def event_json(request_id: str, sender: Identity, members: Mapping[str, Any]) -> str:
    """Return compact JSON of one delivery, as `payload_json` does, of an event that is no item."""
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


def event(item: Item, timestamp: datetime) -> dict[str, Any]:
    """Return an item as the event of a payload: `type`, `timestamp`, and its members without those
    that are None."""
    write = _EVENTS[type(item)]
    members = {"type": type(item).__name__, "timestamp": write_timestamp(timestamp), **write(item)}
    return {name: value for name, value in members.items() if value is not None}


def _decimal(degrees: float) -> str:
    """Decimal degrees as text with the seven places that the on-air format carries."""
    return f"{degrees:.7f}".rstrip("0").rstrip(".")


def estimated_position(latitude: float, longitude: float, radius: int) -> dict[str, Any]:
    """Return the satellite operator's guess, within `radius` kilometres, marked as what it is: it
    is not the sender's word."""
    return {
        "latitude": _decimal(latitude),
        "longitude": _decimal(longitude),
        "radius": radius * 1000,
        "by": "operator",
    }


def _location(item: Location) -> dict[str, Any]:
    return {
        "latitude": _decimal(item.latitude),
        "longitude": _decimal(item.longitude),
        "altitude": item.altitude,
        "speedOverGround": item.speed_over_ground,
        "courseOverGround": item.course_over_ground,
    } | ({} if item.source is None else {"source": item.source})


def _waypoint(item: Waypoint) -> dict[str, Any]:
    return {
        "latitude": _decimal(item.latitude),
        "longitude": _decimal(item.longitude),
        "name": item.name,
        "notes": item.notes,
    }


def incident_text(word: IncidentWord) -> str:
    """Return the word as a sentence for people."""
    who = word.by or "somebody"
    said = {
        Said.OPEN: "SOS open",
        Said.SEEN: f"SOS seen by {who}",
        Said.CLOSED: f"SOS closed by {who}",
        Said.CALLED_OFF: "SOS called off",
    }[word.says]
    return f"{said}: {word.text}" if word.text else said


def _incident_word(word: IncidentWord) -> dict[str, Any]:
    """Who knows no incidents takes it for a message that says the same."""
    number = {"number": word.incident, "state": word.says.value}
    details = {
        "device": str(word.station) if word.station else None,
        "by": word.by,
        "text": word.text,
    }
    incident = number | {name: value for name, value in details.items() if value}
    return {"type": "Message", "content": incident_text(word), "incident": incident}


_EVENTS: dict[type[Item], Callable[[Any], dict[str, Any]]] = {
    Message: lambda item: {"content": item.content},
    Location: _location,
    Waypoint: _waypoint,
    Data: lambda item: {"payload": base64.b64encode(item.payload).decode()},
    IncidentWord: _incident_word,
}
