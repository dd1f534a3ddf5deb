"""What is published, as JSON: state, position, what came in, a Package's way, and discovery. Pure.

Retained is only what anybody at the broker may read later: no text of a message, no secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fieldagent.extensions.mqtt import discovery as shown
from fieldagent.extensions.mqtt.agent.topics import MqttTopics
from fieldagent.extensions.mqtt.discovery import CONSUMER
from fieldagent.package.package import Location
from fieldagent.package.writing import write_timestamp

EVENT_TYPES = ("message", "location", "waypoint", "data", "sos", "incident")
"""Of what comes in."""
LINKED = ("ready", "busy")


def state(status: Mapping[str, Any], last_inbound: str | None, left: int) -> dict[str, Any]:
    """Return what the broker is told of the kit's state. `status` is the answer to `GET
    /api/status`; `left` are credits that MQTT may cost today."""
    links = {name.lower(): link for name, link in status["channels"].items() if link["configured"]}
    document: dict[str, Any] = {
        "sos": bool(status["sos"]["active"]),
        "waiting": sum(link["queued"] for link in links.values()),
        "clock": status["clock"]["source"],
        "notices": len(status["notices"]),
        "lastInbound": last_inbound,
        "mqttCreditsLeft": left,
    }
    for name, link in links.items():
        document[name] = link["state"]
        document[f"{name}Bars"] = link["signal"]
    if (satellite := links.get("satellite")) is not None:
        document["creditsToday"] = satellite["creditsToday"]
        if (limit := satellite.get("creditsPerDay")) is not None:
            spent = satellite["creditsToday"] + satellite["creditsDoubtfulToday"]
            document["creditsLeft"] = max(0, limit - spent)
    return document


def position(place: Location) -> dict[str, Any]:
    """Return a place under the names that Home Assistant gives a tracker's attributes. How exact it
    is, nobody has said."""
    attributes: dict[str, Any] = {"latitude": place.latitude, "longitude": place.longitude}
    if place.altitude is not None:
        attributes["altitude"] = place.altitude
    if place.timestamp is not None:
        attributes["timestamp"] = write_timestamp(place.timestamp)
    return attributes


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
    parts: dict[str, dict[str, Any]] = {
        "sos": shown.flag("SOS open", "sos", "safety"),
        "waiting": shown.number("Packages to send", "waiting"),
        "last_inbound": shown.moment("Last message", "lastInbound"),
        "mqtt_credits_left": shown.number("Credits left by MQTT", "mqttCreditsLeft"),
        "position": shown.tracker(topics.position),
        "inbound": shown.event(topics.inbound, EVENT_TYPES),
        "send": shown.notify(f"{topics.send}/{CONSUMER}"),
    }
    for channel in channels:
        parts |= _of_channel(channel)
    return shown.announcement(topics.device, name, parts, state=topics.state, online=topics.online)


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
        "satellite_bars": shown.number("Satellite signal", "satelliteBars"),
        "credits_today": shown.number("Credits today", "creditsToday"),
        "credits_left": shown.number("Credits left", "creditsLeft"),
    }
