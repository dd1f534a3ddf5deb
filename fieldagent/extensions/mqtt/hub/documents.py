"""Builds the JSON documents that the hub publishes, and their descriptions for Home Assistant. Pure
functions.

Retained documents contain only facts that any client of the broker may read later. They contain no
message text and no secret.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fieldagent.extensions.mqtt import discovery as shown
from fieldagent.extensions.mqtt.discovery import CONSUMER
from fieldagent.extensions.mqtt.hub.topics import HubTopics
from fieldagent.package.writing import format_timestamp
from fieldagent.system.lazy_named_tuple import NamedTuple

EVENT_TYPES = ("message", "location", "waypoint", "data", "sos", "alarm", "incident")
"""Event types of items from kits."""
_SHARE_OF = {
    "message": "messages",
    "location": "positions",
    "waypoint": "waypoints",
    "data": "data",
    "incident": "incidents",
}


class KitItem(NamedTuple):
    """Facts about an item from a kit that decide whether and how the hub publishes it."""

    id: int
    accepted: float
    kit: int
    kind: str
    sos: bool
    private: bool
    """True if the item is for one person or a group."""
    request_id: str
    alarm: bool = False
    """True for an alarm that the hub itself raised."""

    @property
    def has_delivery_steps(self) -> bool:
        """Return True if the delivery steps of the item are published. The steps of positions are
        not published, because a kit may send a position every minute and few people want these
        steps.
        """
        return self.kind != "location" or self.sos


class OpenIncident(NamedTuple):
    id: int
    kit: int
    kind: str
    state: str


def is_shared(item: KitItem, shares: Collection[str]) -> bool:
    """Return True if the settings allow the item to be published. For an item to one person or a
    group, the settings must also contain "private". For an SOS, "incidents" is sufficient.
    """
    if item.sos or item.alarm:
        return "incidents" in shares
    return _SHARE_OF.get(item.kind) in shares and (not item.private or "private" in shares)


def get_event_type(item: KitItem) -> str:
    """Return the Home Assistant event type of an item."""
    return "sos" if item.sos else "alarm" if item.alarm else item.kind


def format_clock(moment: float | None) -> str | None:
    """Return a Unix time in ISO 8601, or None if `moment` is None."""
    return None if moment is None else format_timestamp(datetime.fromtimestamp(moment, UTC))


def make_kit_state(device: Mapping[str, Any], incidents: Sequence[OpenIncident]) -> dict[str, Any]:
    """Return the published state of a kit. `device` is a kit in the form of `GET /api/devices`.
    `incidents` are its open incidents.
    """
    sos = [each for each in incidents if each.kind == "sos"]
    state: dict[str, Any] = {
        "name": device["name"],
        "user": device["user"]["name"],
        "lastHeard": format_clock(device["lastContact"]),
        "over": device["over"],
        "linked": device["linked"],
        "silent": any(each.kind == "overdue" for each in incidents),
        "sos": bool(sos),
        "sosAnswered": bool(sos) and all(each.state != "open" for each in sos),
        "incidents": [each.id for each in incidents],
        "waiting": device["waiting"],
    }
    if (check_in := device["checkIn"]) is not None:
        state["checkInDue"] = format_clock(check_in["due"])
    if (budget := device["credits"]) is not None:
        state["creditsToday"] = budget["spent"]
        state["creditsLeft"] = max(0, budget["perDay"] - budget["spent"])
    return state


_MOTION = {"altitude": "altitude", "speed": "speedOverGround", "course": "courseOverGround"}


def make_position(device: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a kit's position with the attribute names of a Home Assistant tracker, or None if
    there is no position. The document contains no accuracy, because the accuracy is unknown.
    """
    if (place := device["position"]) is None:
        return None
    motion = {name: place[member] for name, member in _MOTION.items() if member in place}
    return {
        "latitude": place["latitude"],
        "longitude": place["longitude"],
        **motion,
        "timestamp": format_clock(place["at"]),
    }


def make_hub_state(
    kits: int, incidents: Sequence[OpenIncident], credits_left: int
) -> dict[str, Any]:
    """Return the published state of the hub. `credits_left` is the number of credits that MQTT may
    still spend today.
    """
    unanswered = sum(each.state == "open" for each in incidents)
    return {
        "kits": kits,
        "incidents": len(incidents),
        "unanswered": unanswered,
        "mqttCreditsLeft": credits_left,
    }


_OF_INCIDENT = (
    *("id", "kind", "state", "raised", "device", "number", "item", "unauthenticated", "revoked"),
    *("calledOff", "position", "seen", "closed"),
)


def make_incident(
    document: Mapping[str, Any], event: Mapping[str, Any] | None, repeat: int
) -> dict[str, Any]:
    """Return the published state of an incident. `document` is an incident in the form of `GET
    /api/sos`. `event` is the incident's last event, or None if the incident is published again
    because it is unanswered. `repeat` is the number of this repetition.
    """
    own = {name: document[name] for name in _OF_INCIDENT}
    return {"event_type": "incident", **own, "event": event, "repeat": repeat}


def make_hub_discovery(topics: HubTopics, name: str) -> dict[str, Any]:
    """Return the discovery message that makes the hub a device in Home Assistant (2024.11 or
    later).
    """
    parts = {
        "kits": shown.make_number_sensor("Kits", "kits"),
        "incidents": shown.make_number_sensor("Open incidents", "incidents"),
        "unanswered": shown.make_number_sensor("Incidents without an answer", "unanswered"),
        "mqtt_credits_left": shown.make_number_sensor("Credits left by MQTT", "mqttCreditsLeft"),
    }
    return shown.make_announcement(
        topics.device, name, parts, state=topics.state, online=topics.online
    )


def make_kit_discovery(topics: HubTopics, device: Mapping[str, Any]) -> dict[str, Any]:
    """Return the discovery message for a kit. `device` is a kit in the form of `GET
    /api/devices`.
    """
    kit = int(device["id"])
    parts: dict[str, dict[str, Any]] = {
        "sos": shown.make_flag("SOS open", "sos", "safety"),
        "silent": shown.make_flag("Overdue", "silent", "problem"),
        "linked": shown.make_flag("Link", "linked", "connectivity"),
        "last_heard": shown.make_timestamp("Last heard", "lastHeard"),
        "over": shown.make_text_sensor("Heard over", "over"),
        "waiting": shown.make_number_sensor("Waits for the kit", "waiting"),
        "position": shown.make_tracker(topics.get_kit_topic(kit, "position")),
        "item": shown.make_event_entity(topics.get_kit_topic(kit, "item"), EVENT_TYPES),
        "send": shown.make_notify_entity(f"{topics.get_kit_topic(kit, 'send')}/{CONSUMER}"),
    }
    budget = {
        "credits_today": shown.make_number_sensor("Credits today", "creditsToday"),
        "credits_left": shown.make_number_sensor("Credits left", "creditsLeft"),
    }
    has_limit = device["credits"] is not None
    return shown.make_announcement(
        topics.get_device_id(kit),
        str(device["name"]),
        parts | (budget if has_limit else {}),
        state=topics.get_kit_topic(kit, "state"),
        online=topics.online,
        version=device["version"],
        via=topics.device,
        absent={} if has_limit else budget,
    )
