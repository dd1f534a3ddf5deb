"""What the hub publishes, as JSON, and what Home Assistant makes of it. Pure.

Retained is only what anybody at the broker may read later: no text of a message, no secret.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fieldagent.extensions.mqtt import discovery as shown
from fieldagent.extensions.mqtt.discovery import CONSUMER
from fieldagent.extensions.mqtt.hub.topics import HubTopics
from fieldagent.package.writing import write_timestamp
from fieldagent.system.lazy_named_tuple import NamedTuple

EVENT_TYPES = ("message", "location", "waypoint", "data", "sos", "incident")
"""Of what kits send."""
_SHARE_OF = {
    "message": "messages",
    "location": "positions",
    "waypoint": "waypoints",
    "data": "data",
    "incident": "incidents",
}


class KitItem(NamedTuple):
    """What a kit has sent."""

    id: int
    accepted: float
    kit: int
    kind: str
    sos: bool
    private: bool
    """It is for one person or a group."""
    request_id: str

    @property
    def has_way(self) -> bool:
        """Return whether people ask how far it has come: hardly where a kit was each minute."""
        return self.kind != "location" or self.sos


class OpenIncident(NamedTuple):
    id: int
    kit: int
    kind: str
    state: str


def is_shared(item: KitItem, shares: Collection[str]) -> bool:
    """Return whether the settings let an item be published; what is for one person or a group needs
    "private" too, an SOS "incidents" alone."""
    if item.sos:
        return "incidents" in shares
    return _SHARE_OF.get(item.kind) in shares and (not item.private or "private" in shares)


def event_type(item: KitItem) -> str:
    """Return the type of the event in Home Assistant that an item fires."""
    return "sos" if item.sos else item.kind


def clock(moment: float | None) -> str | None:
    """Return a moment in Unix time as ISO 8601."""
    return None if moment is None else write_timestamp(datetime.fromtimestamp(moment, UTC))


def kit_state(device: Mapping[str, Any], incidents: Sequence[OpenIncident]) -> dict[str, Any]:
    """Return what is told of a kit. `device` is a kit as `GET /api/devices` has it; `incidents` are
    its open ones."""
    sos = [each for each in incidents if each.kind == "sos"]
    state: dict[str, Any] = {
        "name": device["name"],
        "user": device["user"]["name"],
        "lastHeard": clock(device["lastContact"]),
        "over": device["over"],
        "linked": device["linked"],
        "silent": any(each.kind == "overdue" for each in incidents),
        "sos": bool(sos),
        "sosAnswered": bool(sos) and all(each.state != "open" for each in sos),
        "incidents": [each.id for each in incidents],
        "waiting": device["waiting"],
    }
    if (check_in := device["checkIn"]) is not None:
        state["checkInDue"] = clock(check_in["due"])
    if (budget := device["credits"]) is not None:
        state["creditsToday"] = budget["spent"]
        state["creditsLeft"] = max(0, budget["perDay"] - budget["spent"])
    return state


def position(device: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a position under the names that Home Assistant gives a tracker's attributes; None
    where none is known. How exact it is, nobody has said."""
    if (place := device["position"]) is None:
        return None
    return {
        "latitude": place["latitude"],
        "longitude": place["longitude"],
        "timestamp": clock(place["at"]),
    }


def hub_state(kits: int, incidents: Sequence[OpenIncident], left: int) -> dict[str, Any]:
    """Return what is told of the hub. `left` are credits that MQTT may cost today."""
    unanswered = sum(each.state == "open" for each in incidents)
    return {
        "kits": kits,
        "incidents": len(incidents),
        "unanswered": unanswered,
        "mqttCreditsLeft": left,
    }


_OF_INCIDENT = (
    *("id", "kind", "state", "raised", "device", "number", "item", "unauthenticated", "revoked"),
    *("calledOff", "position", "seen", "closed"),
)


def incident(
    document: Mapping[str, Any], event: Mapping[str, Any] | None, repeat: int
) -> dict[str, Any]:
    """Return what is told of an incident. `document` is an incident as `GET /api/sos` has it;
    `event` what happened to it, None where it is told again as nobody has answered, the
    `repeat`th time."""
    own = {name: document[name] for name in _OF_INCIDENT}
    return {"event_type": "incident", **own, "event": event, "repeat": repeat}


def of_hub(topics: HubTopics, name: str) -> dict[str, Any]:
    """Return the message by which Home Assistant (2024.11 or later) makes the hub a device."""
    parts = {
        "kits": shown.number("Kits", "kits"),
        "incidents": shown.number("Open incidents", "incidents"),
        "unanswered": shown.number("Incidents without an answer", "unanswered"),
        "mqtt_credits_left": shown.number("Credits left by MQTT", "mqttCreditsLeft"),
    }
    return shown.announcement(topics.device, name, parts, state=topics.state, online=topics.online)


def of_kit(topics: HubTopics, kit: int, state: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a kit to Home Assistant in the same way; `state` is what is told of it."""
    parts: dict[str, dict[str, Any]] = {
        "sos": shown.flag("SOS open", "sos", "safety"),
        "silent": shown.flag("Overdue", "silent", "problem"),
        "linked": shown.flag("Link", "linked", "connectivity"),
        "last_heard": shown.moment("Last heard", "lastHeard"),
        "over": shown.word("Heard over", "over"),
        "waiting": shown.number("Waits for the kit", "waiting"),
        "position": shown.tracker(topics.kit(kit, "position")),
        "item": shown.event(topics.kit(kit, "item"), EVENT_TYPES),
        "send": shown.notify(f"{topics.kit(kit, 'send')}/{CONSUMER}"),
    }
    if "creditsToday" in state:
        parts["credits_today"] = shown.number("Credits today", "creditsToday")
        parts["credits_left"] = shown.number("Credits left", "creditsLeft")
    return shown.announcement(
        topics.device_of(kit),
        str(state["name"]),
        parts,
        state=topics.kit(kit, "state"),
        online=topics.online,
        via=topics.device,
    )
