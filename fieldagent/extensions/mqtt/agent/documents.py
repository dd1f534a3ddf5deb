"""Builds the JSON documents that the kit publishes: state, position, inbound items, progress of
Packages, and discovery. Pure functions.

Retained documents contain only facts that any client of the broker may read later. They contain no
message text and no secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fieldagent.extensions.mqtt import discovery as shown
from fieldagent.extensions.mqtt.agent.topics import MqttTopics
from fieldagent.extensions.mqtt.discovery import CONSUMER
from fieldagent.package.package import Location
from fieldagent.package.writing import format_timestamp

EVENT_TYPES = ("message", "location", "waypoint", "data", "sos", "incident")
"""Event types of inbound items."""
LINKED = ("ready", "busy")


def make_state(
    status: Mapping[str, Any], last_inbound: str | None, credits_left: int
) -> dict[str, Any]:
    """Return the state document of the kit. `status` is the content of the response to `GET
    /api/status`. `credits_left` is the number of credits that MQTT may still spend today.
    """
    links = {name.lower(): link for name, link in status["channels"].items() if link["configured"]}
    document: dict[str, Any] = {
        "sos": bool(status["sos"]["active"]),
        "waiting": sum(link["queued"] for link in links.values()),
        "clock": status["clock"]["source"],
        "notices": len(status["notices"]),
        "lastInbound": last_inbound,
        "mqttCreditsLeft": credits_left,
    }
    for name, link in links.items():
        document[name] = link["state"]
        document[f"{name}Bars"] = link["signal"]
    if (satellite := links.get("satellite")) is not None:
        document["creditsToday"] = satellite["creditsToday"]
        if (limit := satellite.get("creditsPerDay")) is not None:
            spent = satellite["creditsToday"] + satellite["creditsInDoubtToday"]
            document["creditsLeft"] = max(0, limit - spent)
    return document


def make_position(place: Location) -> dict[str, Any]:
    """Return a position with the attribute names of a Home Assistant tracker. The document contains
    no accuracy, because the accuracy is unknown.
    """
    attributes: dict[str, Any] = {"latitude": place.latitude, "longitude": place.longitude}
    motion = {
        "altitude": place.altitude,
        "speed": place.speed_over_ground,
        "course": place.course_over_ground,
    }
    attributes |= {name: value for name, value in motion.items() if value is not None}
    if place.timestamp is not None:
        attributes["timestamp"] = format_timestamp(place.timestamp)
    return attributes


def encode_inbound(body: str) -> bytes:
    """Return the JSON that a hook receives, with the additional first member `event_type` for Home
    Assistant.
    """
    event = _make_event_entity(body)
    kind = str(event["type"]).lower()
    if "incident" in event:
        kind = "incident"
    if event.get("sos"):
        kind = "sos"
    return f'{{"event_type":"{kind}",{body[1:]}'.encode("utf-8", "backslashreplace")


def find_item_date(body: str) -> str:
    """Return the time of an inbound item in ISO 8601. `body` is the JSON that a hook receives."""
    return str(_make_event_entity(body)["timestamp"])


def _make_event_entity(body: str) -> dict[str, Any]:
    (payload,) = json.loads(body)["payloads"]
    (event,) = payload["events"]
    return dict(event)


def make_discovery(topics: MqttTopics, name: str, channels: Mapping[str, bool]) -> dict[str, Any]:
    """Return the discovery message from which Home Assistant (2024.11 or later) creates this kit as
    a device. `channels` contains each channel in lower case, with True if it is configured.
    """
    parts: dict[str, dict[str, Any]] = {
        "sos": shown.make_flag("SOS open", "sos", "safety"),
        "waiting": shown.make_number_sensor("Packages to send", "waiting"),
        "last_inbound": shown.make_timestamp("Last message", "lastInbound"),
        "mqtt_credits_left": shown.make_number_sensor("Credits left by MQTT", "mqttCreditsLeft"),
        "position": shown.make_tracker(topics.position),
        "inbound": shown.make_event_entity(topics.inbound, EVENT_TYPES),
        "send": shown.make_notify_entity(f"{topics.send}/{CONSUMER}"),
    }
    absent: dict[str, dict[str, Any]] = {}
    for channel, configured in channels.items():
        (parts if configured else absent).update(_describe_channel(channel))
    return shown.make_announcement(
        *(topics.device, name, parts), state=topics.state, online=topics.online, absent=absent
    )


def _describe_channel(channel: str) -> dict[str, dict[str, Any]]:
    linked = {
        "platform": "binary_sensor",
        "name": f"{channel.capitalize()} link",
        "device_class": "connectivity",
        "value_template": shown.make_flag_template(
            channel, f"value_json.get('{channel}') in {LINKED!r}"
        ),
    }
    if channel != "satellite":
        return {channel: linked}
    return {
        channel: linked,
        "satellite_bars": shown.make_number_sensor("Satellite signal", "satelliteBars"),
        "credits_today": shown.make_number_sensor("Credits today", "creditsToday"),
        "credits_left": shown.make_number_sensor("Credits left", "creditsLeft"),
    }
