"""Home Assistant discovery (2024.11 or later). One retained message describes each device. Pure
functions.

The templates read members with `get`, because Home Assistant logs a warning if a member is missing.
If the result is `None`, the state of the entity is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fieldagent import __version__

CONSUMER = "home-assistant"
"""Sender name that Home Assistant uses."""


def encode_compact(document: Any) -> bytes:
    """Return a document as JSON without spaces, in ASCII."""
    return json.dumps(document, separators=(",", ":")).encode()


def make_flag(name: str, member: str, device_class: str) -> dict[str, Any]:
    """Return the discovery config of a binary sensor that shows a boolean member of the state."""
    return {
        "platform": "binary_sensor",
        "name": name,
        "device_class": device_class,
        "value_template": make_flag_template(member, f"value_json.get('{member}')"),
    }


def make_flag_template(member: str, on: str) -> str:
    """Return the template of a binary sensor that shows a member of the state. If the condition
    `on` is true, the sensor is ON.
    """
    return f"{{{{ ('ON' if {on} else 'OFF') if '{member}' in value_json else none }}}}"


def make_text_sensor(name: str, member: str, **more: str) -> dict[str, Any]:
    """Return the discovery config of a sensor that shows a member of the state unchanged."""
    return {
        "platform": "sensor",
        "name": name,
        **more,
        "value_template": f"{{{{ value_json.get('{member}') }}}}",
    }


def make_number_sensor(name: str, member: str) -> dict[str, Any]:
    """Return the discovery config of a numeric sensor with statistics."""
    return make_text_sensor(name, member, state_class="measurement")


def make_timestamp(name: str, member: str) -> dict[str, Any]:
    """Return the discovery config of a timestamp sensor. The state of the sensor is an ISO 8601
    time.
    """
    return make_text_sensor(name, member, device_class="timestamp")


def make_tracker(topic: str) -> dict[str, Any]:
    """Return the discovery config of a device tracker. The topic receives JSON with latitude and
    longitude.
    """
    return {
        "platform": "device_tracker",
        "name": "Position",
        "source_type": "gps",
        "json_attributes_topic": topic,
    }


def make_event_entity(topic: str, types: tuple[str, ...]) -> dict[str, Any]:
    """Return the discovery config of an event entity for the messages on a topic. `types` are the
    possible values of `event_type`.
    """
    return {"platform": "event", "name": "Message", "event_types": [*types], "state_topic": topic}


def make_notify_entity(topic: str) -> dict[str, Any]:
    """Return the discovery config of a notify entity, which publishes a text on the topic."""
    return {"platform": "notify", "name": "Send", "command_topic": topic}


def make_announcement(
    device: str,
    name: str,
    parts: Mapping[str, Mapping[str, Any]],
    *,
    state: str,
    online: str,
    version: str | None = __version__,
    via: str = "",
    absent: Mapping[str, Mapping[str, Any]] = {},
) -> dict[str, Any]:
    """Return the discovery message of a device with the entities `parts`. `state` and `online` are
    topics. `version` is the version of the device's program, or None if it is unknown. `via` is the
    device that reports for this device. `absent` are entities that the device may have had before.
    """
    description: dict[str, Any] = {
        "identifiers": [device],
        "name": f"fieldagent {name}",
        "manufacturer": "fieldagent",
        **({"sw_version": version} if version else {}),
        **({"via_device": via} if via else {}),
    }
    # If the whole device had one state topic, this topic would also be the state of the tracker.
    state_members = {"state_topic": state}
    return {
        "device": description,
        "origin": {"name": "fieldagent", "sw_version": __version__},
        "components": {
            **{
                key: {
                    **(state_members if "value_template" in part else {}),
                    **part,
                    "unique_id": f"{device}_{key}",
                }
                for key, part in parts.items()
            },
            # A component that contains nothing but its platform removes the entity.
            **{key: {"platform": part["platform"]} for key, part in absent.items()},
        },
        "availability": [
            {
                "topic": online,
                "payload_available": "online",
                "payload_not_available": "offline",
            }
        ],
        "qos": 1,
    }
