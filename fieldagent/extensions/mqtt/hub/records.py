"""Database records for an MQTT broker: published items and received commands.

A row of `mqtt_item` is an item whose delivery steps are published, with the number of steps that
were published so far. A row of `mqtt_command` is a command that was carried out, with its largest
possible cost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fieldagent.extensions.mqtt.hub import documents
from fieldagent.extensions.mqtt.hub.documents import KitItem, OpenIncident
from fieldagent.hub.access import people
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.api import reading, sos_desk
from fieldagent.hub.api.standing import list_reached
from fieldagent.hub.bridge import tenure
from fieldagent.hub.field import texts_to_kits
from fieldagent.hub.records import alarm, sos
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple

NAME = "mqtt"
DAY_S = 86_400.0
KITS_MAX = 500
"""Largest number of kits whose state is published. The newest kits are published."""
STEPS_MAX = 500
"""Largest number of items whose delivery steps are published. These are the newest items of a
day."""
KEY_RETENTION_S = 7 * DAY_S
"""Seconds for which the hub recognises a command by its key."""
REPEAT_WINDOW_S = 3_600.0
"""Seconds for which the hub recognises a command without a key by its packet number."""
OPEN_MAX = 200


def read_last_event(db: Db) -> int:
    """Return the id of the last incident event that was published."""
    ((number,),) = db.execute("SELECT happened FROM bridge WHERE name = ?", NAME)
    return int(number)


def store_last_event(db: Db, up_to: int) -> None:
    """Store the id of the last published event. A lower id changes nothing."""
    db.execute("UPDATE bridge SET happened = ? WHERE name = ? AND happened < ?", up_to, NAME, up_to)


def list_fresh_items(db: Db, workspace: int, after: int, limit: int) -> list[KitItem]:
    """Return at most `limit` items from kits after the item id `after`, in order. Items that kits
    sent back after a restore are not included.
    """
    rows = db.execute(
        "SELECT id, accepted, source_device, kind, sos, target IS NOT NULL OR team IS NOT NULL,"
        " request_id FROM item WHERE workspace = ? AND id > ? AND source_device IS NOT NULL"
        " AND restored IS NULL ORDER BY id LIMIT ?",
        *(workspace, after, limit),
    )
    return [
        KitItem(
            *(id_, float(accepted), kit, kind, is_urgent == 1, bool(private), request_id),
            alarm=is_urgent == alarm.ITEM,
        )
        for id_, accepted, kit, kind, is_urgent, private, request_id in rows
    ]


def add_documents(db: Db, items: Sequence[KitItem]) -> list[tuple[KitItem, dict[str, Any]]]:
    """Return each item with its document in the form of `GET /api/items`."""
    bodies = {
        each.number: each.encode() for each in reading.list_items(db, [each.id for each in items])
    }
    return [(each, bodies[each.id]) for each in items]


def record_published(db: Db, items: Sequence[tuple[KitItem, str]], up_to: int, now: float) -> None:
    """Record that the broker has these items, with their topics, and all items up to `up_to`."""
    for item, topic in items:
        if item.has_delivery_steps:
            follow_item(db, item.id, topic, now)
    tenure.store_place(db, NAME, up_to)


def follow_item(db: Db, item: int, topic: str, now: float) -> None:
    """Publish the delivery steps of an item from now on."""
    db.execute(
        "INSERT INTO mqtt_item (item, topic, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        *(item, topic, now),
    )


class ItemDeliverySteps(NamedTuple):
    """Delivery steps of an item, and the topic on which the hub publishes them."""

    item: int
    topic: str
    request_id: str
    steps: list[dict[str, Any]]
    stored: int
    """Number of delivery steps in the database, including steps that were not published yet."""


def list_unpublished_steps(db: Db, now: float) -> list[ItemDeliverySteps]:
    """Return the items of the last day with delivery steps that were not published yet. Each has
    all its steps. Only the newest STEPS_MAX items are searched.
    """
    rows = db.execute(
        "SELECT mqtt_item.item, topic, request_id, steps, (SELECT count(*) FROM reached"
        " WHERE reached.item = mqtt_item.item) + (SELECT count(*) FROM delivery"
        " WHERE delivery.item = mqtt_item.item AND delivery.state = 'stored') FROM mqtt_item"
        " JOIN item ON item.id = mqtt_item.item WHERE at > ? ORDER BY mqtt_item.item DESC LIMIT ?",
        *(now - DAY_S, STEPS_MAX),
    )
    news = {
        item: (topic, request_id, stored)
        for item, topic, request_id, sent_steps, stored in reversed(rows)
        if stored > sent_steps
    }
    steps = list_reached(db, [*news])
    return [
        ItemDeliverySteps(item, topic, request_id, steps[item], stored)
        for item, (topic, request_id, stored) in news.items()
    ]


def store_step_count(db: Db, steps: ItemDeliverySteps) -> None:
    """Store the number of an item's published steps."""
    db.execute("UPDATE mqtt_item SET steps = ? WHERE item = ?", steps.stored, steps.item)


def list_open_incidents(db: Db, workspace: int) -> list[OpenIncident]:
    """Return the newest `OPEN_MAX` incidents of a workspace that are not closed, oldest first."""
    rows = db.execute(
        "SELECT id, device, kind, state FROM sos WHERE workspace = ? AND state <> 'closed'"
        " ORDER BY id DESC LIMIT ?",
        *(workspace, OPEN_MAX),
    )
    return [OpenIncident._make(row) for row in rows[::-1]]


def find_repeated_incident(db: Db, workspace: int, id_: int, repeat: int) -> dict[str, Any] | None:
    """Return the document of an incident that is published again, or None if the incident is not
    open.
    """
    incident = sos.find_incident(db, workspace, id_)
    if incident is None or incident.state != "open":
        return None
    return documents.make_incident(sos_desk.describe_sos(db, incident), None, repeat)


class IncidentEvent(NamedTuple):
    """An event of an incident, such as an answer or its end, in the form of the API."""

    number: int
    at: float
    sos: int
    kit: int
    document: dict[str, Any]


def list_events_since(db: Db, workspace: int, after: int, limit: int) -> list[IncidentEvent]:
    """Return at most `limit` events of incidents with ids greater than `after`, in order."""
    events = []
    for number, at in sos.list_events_behind(db, workspace, after, limit):
        incident = sos.find_by_event(db, number)
        assert incident is not None, "its timeline has it"
        document = documents.make_incident(
            sos_desk.describe_sos(db, incident), sos_desk.encode_desk_event(db, number), 0
        )
        events.append(IncidentEvent(number, at, incident.id, incident.device, document))
    return events


def list_kits(db: Db, workspace: int, now: float) -> list[dict[str, Any]]:
    """Return the kits of a workspace in the form of `GET /api/devices`."""
    bridge = Caller(0, "MQTT", workspace, frozenset(), 0, people.INTEGRATION, "MQTT", "", False)
    devices, _ = reading.list_devices(db, bridge, reading.END, KITS_MAX, now)
    return devices[::-1]


def list_deleted_kits(db: Db, workspace: int) -> list[int]:
    """Return the ids of the newest `KITS_MAX` deleted kits of a workspace."""
    rows = db.execute(
        "SELECT detail FROM audit WHERE workspace = ? AND action <> 'push'"
        " AND action IN ('device add', 'device delete')",
        workspace,
    )
    numbers = {int(number) for (detail,) in rows if (number := detail.split(" ")[0]).isdecimal()}
    device_ids = {
        id_ for (id_,) in db.execute("SELECT id FROM device WHERE workspace = ?", workspace)
    }
    return sorted(numbers - device_ids, reverse=True)[:KITS_MAX]


class StoredCommand(NamedTuple):
    digest: bytes
    outcome: dict[str, Any]


def _read_stored(rows: Sequence[tuple[Any, ...]]) -> StoredCommand | None:
    for digest, outcome in rows:
        return StoredCommand(bytes(digest), json.loads(outcome))
    return None


def find_known_command(db: Db, sender: str, key: str) -> StoredCommand | None:
    """Return the sender's command with this key and its result, or None if there was no such
    command.
    """
    rows = db.execute(
        "SELECT digest, outcome FROM mqtt_command WHERE sender = ? AND key = ?", sender, key
    )
    return _read_stored(rows)


def find_earlier_outcome(
    db: Db, sender: str, prefix: str, digest: bytes, now: float
) -> StoredCommand | None:
    """Return the result of the same command, if the broker delivered it within `REPEAT_WINDOW_S`
    seconds under a key with this prefix. The prefix contains the packet number, which brokers later
    use again.
    """
    rows = db.execute(
        "SELECT digest, outcome FROM mqtt_command WHERE sender = ? AND digest = ? AND at > ?"
        " AND key LIKE ? ORDER BY at DESC LIMIT 1",
        *(sender, digest, now - REPEAT_WINDOW_S, f"{prefix}%"),
    )
    return _read_stored(rows)


def record_command(
    db: Db, sender: str, key: str, command: StoredCommand, cost: int, now: float
) -> None:
    """Store a command and its result. `cost` is in credits and counts for the day of `now`. The
    sender must not have used the key before.
    """
    db.execute(
        "INSERT INTO mqtt_command (sender, key, digest, outcome, credits, at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        *(sender, key, command.digest, json.dumps(command.outcome), cost, now),
    )


def compute_spent_today(db: Db, now: float) -> int:
    """Return the credits that MQTT commands may have cost on this UTC day."""
    ((spent,),) = db.execute(
        "SELECT coalesce(sum(credits), 0) FROM mqtt_command WHERE at >= ?", now - now % DAY_S
    )
    return int(spent)


def find_member(db: Db, workspace: int, sender: str, now: float) -> int:
    """Return the member in whose name kits see a sender's items. The sender's first command creates
    the member, which cannot sign in.
    """
    name = texts_to_kits.make_author_name(f"{sender} (MQTT)" if sender else "MQTT")
    rows = db.execute(
        "SELECT member.id FROM member JOIN membership ON membership.member = member.id"
        " WHERE workspace = ? AND name = ? AND type = ? ORDER BY member.id LIMIT 1",
        *(workspace, name, people.INTEGRATION),
    )
    return int(rows[0][0]) if rows else texts_to_kits.add_text_author(db, workspace, name, now)


def find_user(db: Db, workspace: int, kit: int) -> int | None:
    """Return the id of the kit's user, or None if the kit is unknown or disabled."""
    rows = db.execute(
        "SELECT member FROM device WHERE id = ? AND workspace = ? AND disabled IS NULL",
        *(kit, workspace),
    )
    return int(rows[0][0]) if rows else None


def forget(db: Db, now: float) -> None:
    """Delete old published items and old commands. `now` is Unix time."""
    db.execute("DELETE FROM mqtt_item WHERE at <= ?", now - DAY_S)
    db.execute("DELETE FROM mqtt_command WHERE at <= ?", now - KEY_RETENTION_S)
