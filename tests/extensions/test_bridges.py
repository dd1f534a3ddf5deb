"""The map in docs/how-to/tak.md is that of the code: what each kind becomes, and what comes
back."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fieldagent.extensions.mqtt.agent import documents
from fieldagent.extensions.mqtt.hub import documents as hub_documents
from fieldagent.extensions.mqtt.hub import kind as hub_mqtt_kind
from fieldagent.extensions.mqtt.hub.documents import KitItem
from fieldagent.extensions.mqtt.hub.topics import make_topics
from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak import map_events as tak_map
from fieldagent.extensions.tak.bridge import kind as tak_kind
from fieldagent.extensions.tak.bridge import outward
from fieldagent.extensions.tak.bridge.door import EventAdmission
from fieldagent.extensions.tak.bridge.records import KitUser, NewItem, OpenAlert, OutEvent
from fieldagent.extensions.tak.cot import CotPoint, encode
from fieldagent.extensions.tak.events import ChatReceipt, GeoChat, PlacedMarker, TakUnit
from fieldagent.extensions.tak.lan import outward as lan
from fieldagent.extensions.tak.lan import settings as tak_lan_settings
from fieldagent.extensions.tak.map_events import SentPosition
from fieldagent.extensions.tak.server import kind as phones_kind
from fieldagent.package.package import (
    Data,
    IncidentState,
    IncidentUpdate,
    Item,
    Location,
    Message,
    Waypoint,
)
from fieldagent.package.reading import ITEMS
from fieldagent.package.writing import get_kind

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/tak.md").read_text()
MQTT = (ROOT / "docs/how-to/mqtt.md").read_text()
NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
ADA, PHONE = TakUnit("FA-1-1", "Ada"), TakUnit("ANDROID-1", "BRAVO")
SPOT = CotPoint(46.5, 8.1)


def read_table() -> dict[str, list[str]]:
    """Return the cells of the table by our kind."""
    table = PAGE.partition("## Mapping of items")[2]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]
    return {name: rest for name, *rest in cells}


def types(cell: str) -> set[str]:
    return set(re.findall(r"`([abt]-[\w-]+)`", cell))


ITEMS_OF_KIND: dict[str, Item] = {
    get_kind(item): item
    for item in (
        Message("word"),
        Location(46.5, 8.1),
        Waypoint(46.5, 8.1, "hut"),
        Data(b"x"),
        IncidentUpdate(1, IncidentState.SEEN),
    )
}
NAMES = {"incident": "incident update"}
MQTT_OUT, MQTT_IN, TAK_OUT, TAK_BACK = range(4)


def list_position_types() -> set[str]:
    """Return the event types that show a user's position, fresh or old, and that remove it."""
    user, now = KitUser(1, "Ada", 46.5, 8.1, 0.0, "ip"), tak_map.FRESH_S + 1
    old = outward.make_position_events(ADA, user, None, now, is_shared=True)
    last_position = SentPosition(user, now, True)
    fresh = outward.make_position_events(
        ADA, user._replace(at=now), last_position, now, is_shared=True
    )
    return {event.type for event in [*old, *fresh]}


def list_sent_types(item: Item) -> set[str]:
    """Return the event types at a TAK server for an item to all and for one to a TAK user."""
    event_types = set()
    for target in (None, 9):
        fresh = NewItem(1, 0.0, 1, target, target is None, get_kind(item), True, False)
        person = outward.find_person(fresh, {9}, tak_kind.SHAREABLE_KINDS)
        if person is not None:
            out = OutEvent(1, 1, 1, person or None, "BRAVO", "ANDROID-1", "m", 0, item, 0.0)
            event = outward.make_event(out, ADA, 0.0)
            event_types.add("" if event is None else event.type)
    return event_types


def test_table_contains_every_kind_of_item() -> None:
    others = {"SOS", "check-in", "receipt"}
    assert {*read_table()} == {NAMES.get(kind, kind) for kind in ITEMS_OF_KIND} | others
    assert all(len(cells) == 4 and all(cells) for cells in read_table().values())


@pytest.mark.parametrize("kind", ITEMS_OF_KIND)
def test_table_matches_the_tak_events_of_each_kind(kind: str) -> None:
    wanted = list_sent_types(ITEMS_OF_KIND[kind])
    if kind == "location":
        wanted |= list_position_types()
    assert types(read_table()[NAMES.get(kind, kind)][TAK_OUT]) == wanted


def test_table_matches_the_tak_events_of_sos_and_receipts() -> None:
    alerts = {outward.make_alert(OpenAlert(1, 1, ends), ADA, 0.0).type for ends in (False, True)}
    assert types(read_table()["SOS"][TAK_OUT]) == alerts
    ticks = {
        tak.make_receipt(ChatReceipt(ADA, "x", "m", read), PHONE, NOW).type
        for read in (False, True)
    }
    assert types(read_table()["receipt"][TAK_OUT]) == ticks


def make_phone_event(kind: str) -> bytes:
    """Return an event of that type from a phone to Ada."""
    said = tak.make_chat(GeoChat(PHONE, ADA, "m", "word"), NOW)
    if kind.startswith(tak.POINTS):
        said = tak.make_marker("spot", PHONE, PlacedMarker("hut", "", SPOT, NOW, ()), NOW)
        return encode(said).replace(b"</detail>", b'<marti><dest callsign="Ada"/></marti></detail>')
    if kind.startswith("b-a-"):
        said = tak.make_alert(ADA, SPOT, NOW)
        return re.sub(rb"<_flow-tags_[^>]*>", b"", encode(said))
    return encode(said)


ALL_TYPES = {
    *(tak.UNIT, tak.CHAT, tak.ON_PHONE, tak.READ, tak.ALERT, tak.CANCEL, tak.MARKER, tak.REMOVAL)
}


def test_table_matches_the_events_admitted_from_tak() -> None:
    door = EventAdmission(lambda became, by=1: None, lambda: 0.0, markers=True)
    let_in = {
        kind
        for kind in ALL_TYPES
        if door.admit(kind, make_phone_event(kind), ADA.uid, 0.0) is not None
    }
    assert set().union(*(types(cells[TAK_BACK]) for cells in read_table().values())) == let_in
    shut = EventAdmission(lambda became, by=1: None, lambda: 0.0, markers=False)
    assert shut.admit(tak.MARKER, make_phone_event(tak.MARKER), ADA.uid, 0.0) is None


def test_table_matches_the_mqtt_events_and_commands() -> None:
    named = {
        name
        for cells in read_table().values()
        for name in re.findall(r"`(\w+)`", cells[MQTT_OUT])
        if name not in ("position", "reached")
    }
    assert named == {*documents.EVENT_TYPES}
    for kind in ("message", "location", "waypoint", "data"):
        event = {"type": kind.upper()}
        body = json.dumps({"payloads": [{"events": [event]}]})
        published = json.loads(documents.encode_inbound(body))
        assert read_table()[kind][MQTT_OUT].startswith(f"`{published['event_type']}`")
        assert kind in ITEMS
        assert kind in read_table()[kind][MQTT_IN]
    for name in ("incident update", "check-in"):
        assert read_table()[name][MQTT_IN].startswith("refused")


def test_page_describes_every_tak_setting_and_share() -> None:
    part = PAGE.partition("## A team's TAK server")[2].partition("## TAK on the kit's own")[0]
    unnamed = [key.name for key in tak_kind.KEYS if key.name not in part]
    assert not unnamed
    assert all(share.rstrip("s") in PAGE.lower() for share in tak_kind.SHAREABLE_KINDS)
    own = (ROOT / "docs/how-to/tak-server.md").read_text()
    assert all(key.name in own for key in phones_kind.KEYS)


def test_page_describes_the_hubs_mqtt_settings_and_topics() -> None:
    kit, _, part = MQTT.partition("## MQTT at the hub")
    unnamed = [key.name for key in hub_mqtt_kind.KEYS if key.name not in part + kit]
    assert not unnamed
    assert all(f"`{share}`" in part for share in hub_mqtt_kind.SHAREABLE_KINDS)
    assert all(f"`{kind}`" in part for kind in hub_documents.EVENT_TYPES)
    topics = make_topics("fieldagent", "hub", "homeassistant")
    named_topics = {
        topics.online,
        topics.state,
        *(topics.get_kit_topic(7, each) for each in ("state", "item")),
    }
    assert all(
        f"`{topic.partition('/hub/')[2].replace('7', 'KIT')}`" in part for topic in named_topics
    )
    assert not [topic for topic in named_topics if topics.find_address(topic)]


@pytest.mark.parametrize("kind", ITEMS_OF_KIND)
def test_hub_publishes_exactly_the_configured_mqtt_shares(kind: str) -> None:
    item = KitItem(1, 0.0, 1, kind, False, False, "id")
    every = {*hub_mqtt_kind.SHAREABLE_KINDS}
    needed = {share for share in every if not hub_documents.is_shared(item, every - {share})}
    assert len(needed) == 1
    private = item._replace(private=True)
    assert not hub_documents.is_shared(private, every - {"private"})
    assert hub_documents.is_shared(private, every)
    # An SOS is for all.
    assert hub_documents.is_shared(private._replace(sos=True), {"incidents"})
    assert hub_documents.get_event_type(item) in hub_documents.EVENT_TYPES


def test_page_describes_the_events_on_the_kits_own_network() -> None:
    part = PAGE.partition("## TAK on the kit's own network")[2]
    assert not [key.name for key in tak_lan_settings.KEYS if key.name not in part]
    assert f"TCP port {lan.PORT}" in part
    who = {"id": "7", "name": "Ben", "type": "User"}
    become = {}
    for kind, event in {
        "message": {"type": "Message", "content": "word"},
        "waypoint": {"type": "Waypoint", "latitude": "1", "longitude": "2", "name": "hut"},
        "data": {"type": "Data", "data": "AA=="},
    }.items():
        body = {"requestId": "r", "payloads": [{"identity": who, "events": [event]}]}
        shown_there = lan.make_event(json.dumps(body), 0.0)
        become[kind] = None if shown_there is None else shown_there.type
    assert become == {"message": tak.CHAT, "waypoint": tak.MARKER, "data": None}
    assert lan.find_user(lan.make_unit("User", "7", "Ben").uid) == 7
    assert lan.find_user(lan.make_unit("Device", "7", "hut").uid) is None
