"""The effects and the cost of MQTT commands, and the messages to a broker: on both databases,
without a broker.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from fieldagent.extensions.mqtt.hub import inward, records
from fieldagent.extensions.mqtt.hub.inward import (
    BrokerOutcome,
    CommandInbox,
    DeliveryMark,
    HubMqttRules,
)
from fieldagent.extensions.mqtt.hub.kind import SHAREABLE_KINDS
from fieldagent.extensions.mqtt.hub.outward import HubReporter
from fieldagent.extensions.mqtt.hub.topics import CommandAddress, make_topics
from fieldagent.extensions.mqtt.session import BrokerLost, MqttSession
from fieldagent.hub.access import directory
from fieldagent.hub.bridge import tenure
from fieldagent.hub.bridge.contract import BridgeHost
from fieldagent.hub.contract import ItemResult
from fieldagent.hub.records import ledger
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.delivery import Stage
from fieldagent.package.package import SOS_PRIORITY, Location, Message
from fieldagent.wire.envelope import Entry
from tests.hub.field import Field, collect, field_of, said

TOPICS = make_topics("fieldagent", "hub", "homeassistant")
RULES = HubMqttRules("1", frozenset(SHAREABLE_KINDS), frozenset(("house",)), 4, True)
INBOX = CommandInbox(1, RULES, TOPICS)
ON_BOTH = pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.full)], indirect=True
)
"""Virtual minutes of PostgreSQL take a quarter of a real minute."""
CLEO = 3
"""Her kit has satellite and accepts items over it."""


@asynccontextmanager
async def bridged_workspace(store: Store) -> AsyncIterator[Field]:
    async with field_of(store) as alps:
        if store.shared:
            await alps.store.commit(
                lambda db: db.execute("SELECT setval(pg_get_serial_sequence('member', 'id'), 9)")
            )
        await alps.store.commit(lambda db: tenure.claim_bridge(db, records.NAME, "here", alps.now))
        yield alps


async def command(
    alps: Field,
    body: Any,
    sender: str = "house",
    kit: int | None = None,
    name: str = "own",
    *,
    number: int | None = None,
    again: bool = False,
) -> BrokerOutcome:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    address = CommandAddress(sender, kit)
    came = DeliveryMark(number, again, f"{name} {alps.now}")
    return await alps.store.commit(
        lambda db: inward.carry_out(db, INBOX, address, came, raw, alps.now)
    )


async def test_command_is_sent_to_a_kit_a_group_or_all(store: Store) -> None:
    async with bridged_workspace(store) as alps:
        taken = await command(alps, "for Ada", kit=1, name="a")
        assert (taken.result, taken.answer["accepted"]) == (ItemResult.TAKEN, True)
        await alps.store.commit(
            lambda db: db.execute(
                "INSERT INTO team (workspace, name, created) VALUES (1, 'Rescue', 0)"
            )
        )
        ((team,),) = await alps.rows("SELECT id FROM team")
        await alps.store.commit(
            lambda db: db.execute("INSERT INTO team_member (team, member) VALUES (?, 2)", team)
        )
        body = {"message": {"content": "come down"}, "targetGroup": "Rescue"}
        assert (await command(alps, body, name="b")).result is ItemResult.TAKEN
        place = {"waypoint": {"latitude": 46.5, "longitude": 8.1, "name": "hut"}}
        assert (await command(alps, place, name="c")).result is ItemResult.TAKEN
        assert [text for _, text in said(await collect(alps.mailbox(1)))] == ["for Ada"]
        assert [text for _, text in said(await collect(alps.mailbox(2)))] == ["come down"]
        # A broken commit that was stored in fact is tried again.
        again = await command(alps, "for Ada", kit=1, name="a")
        assert (again.result, again.answer) == (ItemResult.REPEATED, taken.answer)
        # Each listed sender has its own member, and all others share one.
        await command(alps, "x", "stranger", 1, "d")
        await command(alps, "x", "other", 1, "e")
        voices = await alps.rows("SELECT name FROM member WHERE name LIKE '%MQTT%'")
        assert sorted(name for (name,) in voices) == ["MQTT", "house (MQTT)"]


async def test_redelivered_command_is_carried_out_once_after_a_hub_kill(
    store: Store,
) -> None:
    async with bridged_workspace(store) as alps:
        first = await command(alps, "come down", kit=CLEO, name="a", number=7)
        alps.now += 60
        again = await command(alps, "come down", kit=CLEO, name="b", number=7, again=True)
        assert (again.result, again.answer) == (ItemResult.REPEATED, first.answer)
        # The same text again with another number or later is intended, and so is one from another
        # sender.
        for who, number, is_again in (
            ("house", 7, False),
            ("house", 8, True),
            ("house", 70, True),
            ("other", 7, True),
        ):
            alps.now += 1
            said = await command(alps, "come down", who, CLEO, number=number, again=is_again)
            assert said.result is ItemResult.TAKEN
        alps.now += records.REPEAT_WINDOW_S
        late = await command(alps, "come down", kit=CLEO, number=7, again=True)
        assert late.result is ItemResult.TAKEN


async def test_dry_run_returns_the_cost_and_sends_nothing(store: Store) -> None:
    async with bridged_workspace(store) as alps:
        body = {"message": {"content": "come down"}, "key": "k", "dryRun": True}
        answer = (await command(alps, body, kit=CLEO)).answer
        assert (answer["accepted"], answer["credits"], answer["creditsLeft"]) == (False, 2, 4)
        assert [(each["kit"], each["linked"]) for each in answer["kits"]] == [("kit 3", False)]
        answer = (await command(alps, body, "stranger", CLEO)).answer
        assert answer["credits"] == 0
        assert "stranger is not in mqtt-senders" in answer["withheld"]
        assert await alps.rows("SELECT count(*) FROM item") == [(0,)]
        assert (await command(alps, {**body, "dryRun": 1}, kit=CLEO)).result is ItemResult.REFUSED
        # The key stays free for the command itself, which pays only for one kit of a user.
        add = "UPDATE device SET member = ? WHERE id = 2"
        await alps.store.commit(lambda db: db.execute(add, CLEO))
        del body["dryRun"]
        assert (await command(alps, body, kit=2)).answer["credits"] == 2
        assert await alps.rows("SELECT count(*) FROM item") == [(1,)]


async def test_command_budget_holds_and_a_key_is_charged_once(store: Store) -> None:
    async with bridged_workspace(store) as alps:
        answer = (await command(alps, "x", "stranger", CLEO, "a")).answer
        assert "stranger is not in mqtt-senders" in answer["withheld"]
        await alps.satellite()
        assert alps.sky.taken == []
        body = {"key": "k", "message": {"content": "come down"}, "targetUserId": str(CLEO)}
        first = await command(alps, body, name="b")
        price = first.answer["credits"]
        assert 0 < price <= RULES.credits_per_day
        again = await command(alps, body, name="c")
        assert (again.result, again.answer) == (ItemResult.REPEATED, first.answer)
        other = await command(alps, {**body, "message": {"content": "other"}}, name="d")
        assert (other.result, other.answer["problem"]["status"]) == (ItemResult.REFUSED, 422)
        assert await alps.store.read(lambda db: records.compute_spent_today(db, alps.now)) == price
        while "withheld" not in (last := await command(alps, "x" * 60, kit=CLEO)).answer:
            alps.now += 1
        assert "mqtt-credits-per-day is spent" in last.answer["withheld"]
        alps.now += 86_400
        assert "withheld" not in (await command(alps, "tomorrow", kit=CLEO)).answer
        alps.now += records.KEY_RETENTION_S + 1
        await alps.store.commit(lambda db: records.forget(db, alps.now))
        assert await alps.rows("SELECT * FROM mqtt_command") == []


WRONG: list[tuple[Any, ItemResult, int]] = [
    ("{", ItemResult.UNREADABLE, 400),
    (" ", ItemResult.UNREADABLE, 400),
    ("[" * 40, ItemResult.TAKEN, 0),
    ({"message": {"content": "x"}, "workspaceId": "1"}, ItemResult.REFUSED, 422),
    ({"message": {"content": "x"}, "targetUserId": "2"}, ItemResult.REFUSED, 422),
    ({"message": {"content": "x"}, "priority": SOS_PRIORITY}, ItemResult.REFUSED, 403),
    ({"message": {"content": "x"}, "key": ""}, ItemResult.REFUSED, 422),
    ({"acknowledge": 0}, ItemResult.REFUSED, 422),
    ({"acknowledge": 2**64}, ItemResult.REFUSED, 422),
    ({"acknowledge": 1, "text": "a\0b"}, ItemResult.REFUSED, 422),
    ({"acknowledge": 12}, ItemResult.REFUSED, 404),
]


async def test_invalid_command_is_answered_with_the_reason(store: Store) -> None:
    async with bridged_workspace(store) as alps:
        for number, (body, became, status) in enumerate(WRONG):
            outcome = await command(alps, body, kit=1, name=f"{number}")
            problem = outcome.answer.get("problem", {"status": 0})
            assert (outcome.result, problem["status"]) == (became, status), body


class RecordingSession(MqttSession):
    """Records published messages, like a broker that is `lost` after that many."""

    def __init__(self, lost: float = float("inf")) -> None:
        self.got: list[tuple[str, Any]] = []
        self._lost_after = lost

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        await trio.lowlevel.checkpoint()
        if not retain:
            if len(self.got) >= self._lost_after:
                raise BrokerLost("gone")
            self.got.append((topic, json.loads(payload)))


async def record_messages(
    alps: Field, reporter: HubReporter, seconds: float, ear: RecordingSession | None = None
) -> RecordingSession:
    """Return the messages to the broker during that time."""
    ear = ear or RecordingSession()
    began, now = trio.current_time(), alps.now
    with trio.move_on_at(began + seconds):
        await reporter.run(ear)
    alps.now = now + seconds
    return ear


def make_reporter(alps: Field) -> HubReporter:
    start, now = trio.current_time(), alps.now
    host = BridgeHost(
        alps.store,
        {},
        lambda: now + trio.current_time() - start,
        lambda became, by=1: None,
        lambda up: None,
    )
    return HubReporter(host, INBOX, "hub")


def texts(ear: RecordingSession) -> list[str]:
    return [body["event"]["content"] for topic, body in ear.got if topic.endswith("/item")]


@ON_BOTH
async def test_item_is_published_until_acknowledged_by_the_broker(store: Store, clock: Any) -> None:
    async with bridged_workspace(store) as alps:
        for number in range(1, 4):
            await alps.sends(1, Entry(number, Message(f"word {number}"), int(alps.now)))
        # A push is not a message from a kit.
        await alps.push(Message("of the desk"), target=2)
        reporter = make_reporter(alps)
        with pytest.raises(BrokerLost):
            await record_messages(alps, reporter, 3, RecordingSession(2))
        # The result of the message in transit is unknown, so it comes again with its id.
        again = await record_messages(alps, reporter, 3)
        assert texts(again) == ["word 1", "word 2", "word 3"]
        # If several hubs write, a place becomes final half a minute later.
        assert texts(await record_messages(alps, reporter, 62)) == []
        # Another process, or this one after a restart, continues after the final place.
        assert texts(await record_messages(alps, make_reporter(alps), 3)) == []
        ((item,),) = await alps.rows("SELECT min(id) FROM item")
        await alps.store.commit(
            lambda db: ledger.record_stage(db, item, 2, Stage.READ, "Ben", alps.now)
        )
        (way,) = (await record_messages(alps, make_reporter(alps), 3)).got
        assert way[0].startswith("fieldagent/hub/kit/1/reached/")
        assert [step["text"] for step in way[1]["reached"]] == ["read by Ben"]


@ON_BOTH
async def test_incident_is_published_repeatedly_until_acknowledged(
    store: Store, clock: Any
) -> None:
    async with bridged_workspace(store) as alps:
        place = Location(46.5, 8.1)
        await alps.sends(1, Entry(1, place, int(alps.now), sos=True))
        reporter = make_reporter(alps)
        ear = await record_messages(alps, reporter, 125)
        incidents = [
            body for topic, body in ear.got if topic == TOPICS.get_kit_topic(1, "incident")
        ]
        repeats = [body["repeat"] for body in incidents if body["event"] is None]
        assert incidents[0]["event"]["event"] == "raised"
        # Every 10 s for a minute, and then each minute.
        assert repeats == [*range(1, 7)]
        number = incidents[0]["id"]
        assert (
            await command(alps, {"acknowledge": number}, "stranger")
        ).result is ItemResult.REFUSED
        answer = (await command(alps, {"acknowledge": number, "text": "coming"})).answer
        assert (answer["incident"], answer["state"]) == (number, "seen")
        later = await record_messages(alps, reporter, 35)
        events = [body["event"] for topic, body in later.got if topic.endswith("incident")]
        assert [each["event"] for each in events] == ["seen"]
        assert events[0]["by"]["name"] == "house (MQTT)"


@ON_BOTH
async def test_retained_topics_of_a_deleted_kit_are_cleared(store: Store, clock: Any) -> None:
    async with bridged_workspace(store) as alps:

        class Retained(RecordingSession):
            async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
                await trio.lowlevel.checkpoint()
                if retain and payload:
                    kept[topic] = payload
                elif retain:
                    kept.pop(topic, None)

        def give(db: Db) -> int:
            if store.shared:
                db.execute("SELECT setval(pg_get_serial_sequence('device', 'id'), 9)")
            return directory.add_device(db, 1, 1, directory.NewDevice("lent"), now=alps.now)[0]

        kept: dict[str, bytes] = {}
        kit = await store.commit(give)
        topic, config = (
            TOPICS.get_kit_topic(kit, "state"),
            TOPICS.get_config_topic(TOPICS.get_device_id(kit)),
        )
        await record_messages(alps, make_reporter(alps), 2.0, Retained())
        assert {topic, config, TOPICS.state} <= kept.keys()
        await store.commit(lambda db: db.execute("DELETE FROM device WHERE id = ?", kit))
        await record_messages(alps, make_reporter(alps), 2.0, Retained())
        assert not {topic, config} & kept.keys() and TOPICS.state in kept
