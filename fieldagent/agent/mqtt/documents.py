"""What is published, as JSON: state, position, what came in, a Package's way, and discovery. Pure.

Retained is only what anybody at the broker may read later: no text of a message, no secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fieldagent import __version__
from fieldagent.agent.mqtt.topics import MqttTopics
from fieldagent.package.package import Location
from fieldagent.package.writing import write_timestamp

EVENT_TYPES = ("message", "location", "waypoint", "data", "sos", "incident")
"""Of what comes in."""
CONSUMER = "home-assistant"
"""The sender in whose name Home Assistant sends."""
LINKED = ("ready", "busy")


def compact(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def state(status: Mapping[str, Any], last_inbound: str | None, left: int) -> dict[str, Any]:
    """`status` is the answer to `GET /api/status`; `left` are credits that MQTT may cost today."""
    links = {name.lower(): link for name, link in status["channels"].items() if link["configured"]}
    told: dict[str, Any] = {
        "sos": bool(status["sos"]["active"]),
        "waiting": sum(link["queued"] for link in links.values()),
        "clock": status["clock"]["source"],
        "notices": len(status["notices"]),
        "lastInbound": last_inbound,
        "mqttCreditsLeft": left,
    }
    for name, link in links.items():
        told[name] = link["state"]
        told[f"{name}Bars"] = link["signal"]
    if (satellite := links.get("satellite")) is not None:
        told["creditsToday"] = satellite["creditsToday"]
        if (limit := satellite.get("creditsPerDay")) is not None:
            spent = satellite["creditsToday"] + satellite["creditsDoubtfulToday"]
            told["creditsLeft"] = max(0, limit - spent)
    return told


def position(place: Location) -> dict[str, Any]:
    """Under the names that Home Assistant gives a tracker's attributes. How exact it is, nobody
    has said."""
    told: dict[str, Any] = {"latitude": place.latitude, "longitude": place.longitude}
    if place.altitude is not None:
        told["altitude"] = place.altitude
    if place.timestamp is not None:
        told["timestamp"] = write_timestamp(place.timestamp)
    return told


def inbound(body: str) -> bytes:
    """Return what a hook gets, with an `event_type` before it, by which Home Assistant knows it."""
    (payload,) = json.loads(body)["payloads"]
    (event,) = payload["events"]
    kind = str(event["type"]).lower()
    if "incident" in event:
        kind = "incident"
    if event.get("sos"):
        kind = "sos"
    return f'{{"event_type":"{kind}",{body[1:]}'.encode("utf-8", "backslashreplace")


def discovery(topics: MqttTopics, name: str, channels: Sequence[str]) -> dict[str, Any]:
    """Return the message by which Home Assistant (2024.11 or later) makes this kit a device.
    `channels` are those that are configured, in small letters."""
    device = topics.device
    parts: dict[str, dict[str, Any]] = {
        "sos": _flag("SOS open", "sos", "safety"),
        "waiting": _number("Packages to send", "waiting"),
        "last_inbound": {
            "platform": "sensor",
            "name": "Last message",
            "device_class": "timestamp",
            "value_template": "{{ value_json.lastInbound }}",
        },
        "mqtt_credits_left": _number("Credits left by MQTT", "mqttCreditsLeft"),
        "position": {
            "platform": "device_tracker",
            "name": "Position",
            "source_type": "gps",
            "json_attributes_topic": topics.position,
        },
        "inbound": {
            "platform": "event",
            "name": "Message",
            "event_types": list(EVENT_TYPES),
            "state_topic": topics.inbound,
        },
        "send": {
            "platform": "notify",
            "name": "Send",
            "command_topic": f"{topics.send}/{CONSUMER}",
        },
    }
    for channel in channels:
        parts |= _of_channel(channel)
    for key, part in parts.items():
        part["unique_id"] = f"{device}_{key}"
    return {
        "device": {
            "identifiers": [device],
            "name": f"fieldagent {name}",
            "manufacturer": "fieldagent",
            "sw_version": __version__,
        },
        "origin": {"name": "fieldagent", "sw_version": __version__},
        "components": parts,
        "state_topic": topics.state,
        "availability": [
            {
                "topic": topics.online,
                "payload_available": "online",
                "payload_not_available": "offline",
            }
        ],
        "qos": 1,
    }


def _of_channel(channel: str) -> dict[str, dict[str, Any]]:
    linked = {
        "platform": "binary_sensor",
        "name": f"{channel.capitalize()} link",
        "device_class": "connectivity",
        "value_template": f"{{{{ 'ON' if value_json.{channel} in {LINKED!r} else 'OFF' }}}}",
    }
    if channel != "satellite":
        return {channel: linked}
    return {
        channel: linked,
        "satellite_bars": _number("Satellite signal", "satelliteBars"),
        "credits_today": _number("Credits today", "creditsToday"),
        "credits_left": _number("Credits left", "creditsLeft"),
    }


def _flag(name: str, member: str, device_class: str) -> dict[str, Any]:
    return {
        "platform": "binary_sensor",
        "name": name,
        "device_class": device_class,
        "value_template": f"{{{{ 'ON' if value_json.{member} else 'OFF' }}}}",
    }


def _number(name: str, member: str) -> dict[str, Any]:
    return {
        "platform": "sensor",
        "name": name,
        "state_class": "measurement",
        "value_template": f"{{{{ value_json.{member} }}}}",
    }
