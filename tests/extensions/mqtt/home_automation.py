"""A program that makes devices from MQTT announcements, controlled by a test. It uses paho for the
connection and Jinja for the templates, as Home Assistant does, and follows its documentation
(MQTT discovery by device, 2024.11).

As there, an entity stays until its component contains only its platform, a template that reads a
missing member is a fault, and `None` makes an entity unknown.

Its output has a line of JSON for each change of an entity, each event, each announcement that
breaks the documentation, and each removed entity or device. Its input are lines of JSON:

    {"notify": "fieldagent-hub-1", "text": "storm at five"}

Arguments: the port of the broker, and the client's name, under which the broker keeps messages
while it is away.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from jinja2 import StrictUndefined, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

PORT, NAME = int(sys.argv[1]), sys.argv[2]
ROOT = "homeassistant"
NEEDED = {
    "binary_sensor": ("state_topic",),
    "sensor": ("state_topic",),
    "device_tracker": ("json_attributes_topic",),
    "event": ("state_topic", "event_types"),
    "notify": ("command_topic",),
}
STATE_MAX = 255
"""Characters of a state."""
JINJA = ImmutableSandboxedEnvironment(undefined=StrictUndefined)
entities: dict[str, dict[str, dict[str, Any]]] = {}
"""Entities by the topic of the announcement, and then by the component."""


def tell(**what: Any) -> None:
    # Two threads print, so each line is one write.
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


def announce(client: Client, topic: str, payload: bytes) -> None:
    device = topic.split("/")[2]
    if not payload:
        entities.pop(device, None)
        tell(gone=device)
        return
    announcement = json.loads(payload)
    if not announcement["origin"]["name"] or not announcement["device"]["identifiers"]:
        tell(wrong=f"{topic}: origin or identifiers are missing")
    shared = {name: value for name, value in announcement.items() if name in ("state_topic", "qos")}
    members = entities.setdefault(device, {})
    topics = {each["topic"] for each in announcement["availability"]}
    for name, component in announcement["components"].items():
        if component.keys() == {"platform"}:
            if (gone := members.pop(name, None)) is not None:
                tell(removed=gone["unique_id"])
            continue
        entity = {**shared, **component}
        missing = [key for key in NEEDED[entity["platform"]] if key not in entity]
        if missing or "unique_id" not in entity:
            tell(wrong=f"{topic}: {name} lacks {missing}")
            continue
        members[name] = entity
        topics |= {entity[key] for key in ("state_topic", "json_attributes_topic") if key in entity}
    client.subscribe([(each, 1) for each in sorted(topics)])
    ids = sorted(each["unique_id"] for each in members.values())
    tell(device=device, entities=ids, version=announcement["device"].get("sw_version"))


def take(client: Client, data: object, message: MQTTMessage) -> None:
    if message.topic.startswith(f"{ROOT}/device/"):
        announce(client, message.topic, bytes(message.payload))
        return
    heard = False
    for device, members in entities.items():
        for entity in members.values():
            if message.topic == entity.get("json_attributes_topic"):
                tell(attributes=entity["unique_id"], body=json.loads(message.payload))
            if message.topic != entity.get("state_topic"):
                continue
            if entity["platform"] == "event":
                heard = True
                take_event(device, entity, message)
            elif message.payload:
                show(entity, message.payload.decode())
    if not heard and message.topic.endswith(("/online", "/item", "/inbound")):
        # An event that waited here comes before the announcement when this program restarts.
        tell(other=message.topic, payload=message.payload.decode())


def take_event(device: str, entity: dict[str, Any], message: MQTTMessage) -> None:
    body = json.loads(message.payload)
    if body["event_type"] not in entity["event_types"]:
        tell(wrong=f"{entity['unique_id']}: {body['event_type']} was not announced")
    tell(event=device, retained=message.retain, body=body)


def show(entity: dict[str, Any], payload: str) -> None:
    unique_id, value = entity["unique_id"], payload
    if "value_template" in entity:
        try:
            template = JINJA.from_string(entity["value_template"])
            value = template.render(value_json=json.loads(payload))
        except UndefinedError as error:
            tell(wrong=f"{unique_id}: {error}")
            return
    if entity["platform"] == "binary_sensor" and value not in ("ON", "OFF", "None"):
        tell(wrong=f"{unique_id} is {value!r}")
    if len(value) > STATE_MAX:
        tell(wrong=f"{unique_id} has {len(value)} characters")
    tell(state=unique_id, value=value)


def arrive(client: Client, *_: object) -> None:
    client.subscribe(f"{ROOT}/device/+/config", 1)
    client.publish(f"{ROOT}/status", "online", 1)
    print("at the broker", flush=True)


def obey(client: Client) -> None:
    for line in sys.stdin:
        command = json.loads(line)
        for entity in entities.get(command["notify"], {}).values():
            if entity["platform"] == "notify":
                client.publish(entity["command_topic"], command["text"], entity["qos"])
                tell(notified=command["text"])


def main() -> None:
    client = Client(CallbackAPIVersion.VERSION2, NAME, clean_session=False)
    client.will_set(f"{ROOT}/status", "offline", 1)
    client.on_connect = arrive
    client.on_message = take
    client.reconnect_delay_set(1, 2)
    client.connect("127.0.0.1", PORT)
    client.loop_start()
    obey(client)
    os._exit(0)


main()
