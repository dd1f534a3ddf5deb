"""What Home Assistant (2024.11 or later) makes a device of: one retained message for each. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fieldagent import __version__

CONSUMER = "home-assistant"
"""The sender in whose name Home Assistant sends."""


def compact(document: Any) -> bytes:
    """Return a document as JSON without spaces, in ASCII."""
    return json.dumps(document, separators=(",", ":")).encode()


def flag(name: str, member: str, device_class: str) -> dict[str, Any]:
    """Return what shows a member of the state that is true or false."""
    return {
        "platform": "binary_sensor",
        "name": name,
        "device_class": device_class,
        "value_template": f"{{{{ 'ON' if value_json.{member} else 'OFF' }}}}",
    }


def word(name: str, member: str, **more: str) -> dict[str, Any]:
    """Return what shows a member of the state as it is."""
    return {
        "platform": "sensor",
        "name": name,
        **more,
        "value_template": f"{{{{ value_json.{member} }}}}",
    }


def number(name: str, member: str) -> dict[str, Any]:
    """Return what shows a member of the state that is a number, and keeps its statistics."""
    return word(name, member, state_class="measurement")


def moment(name: str, member: str) -> dict[str, Any]:
    """Return what shows how long ago something was, by a time in ISO 8601."""
    return word(name, member, device_class="timestamp")


def tracker(topic: str) -> dict[str, Any]:
    """Return what shows a position on the map; the topic has it as JSON with latitude and
    longitude."""
    return {
        "platform": "device_tracker",
        "name": "Position",
        "source_type": "gps",
        "json_attributes_topic": topic,
    }


def event(topic: str, types: tuple[str, ...]) -> dict[str, Any]:
    """Return what shows each message on the topic as an event; `types` are its `event_type`."""
    return {"platform": "event", "name": "Message", "event_types": [*types], "state_topic": topic}


def notify(topic: str) -> dict[str, Any]:
    """Return what sends the text that somebody types to the topic, as it is."""
    return {"platform": "notify", "name": "Send", "command_topic": topic}


def announcement(
    device: str,
    name: str,
    parts: Mapping[str, Mapping[str, Any]],
    *,
    state: str,
    online: str,
    via: str = "",
) -> dict[str, Any]:
    """Return the message that makes a device of these parts. `state` and `online` are topics; `via`
    is the device that brings what is told of it."""
    description: dict[str, Any] = {
        "identifiers": [device],
        "name": f"fieldagent {name}",
        "manufacturer": "fieldagent",
        "sw_version": __version__,
    }
    return {
        "device": description | ({"via_device": via} if via else {}),
        "origin": {"name": "fieldagent", "sw_version": __version__},
        "components": {
            key: {**part, "unique_id": f"{device}_{key}"} for key, part in parts.items()
        },
        "state_topic": state,
        "availability": [
            {
                "topic": online,
                "payload_available": "online",
                "payload_not_available": "offline",
            }
        ],
        "qos": 1,
    }
