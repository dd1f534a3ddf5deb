"""From the bytes of an MT message to the spool, with duplicates, fragments, damage and restarts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio

from fieldagent.agent.inbound import reading
from fieldagent.agent.inbound.reception import Inbox, ReceivedMessage
from fieldagent.agent.journal import inbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.package.package import Data, Item, Location, Message, Waypoint
from fieldagent.package.payload import Identity
from fieldagent.wire.envelope import (
    Contact,
    Entry,
    EstimatedPosition,
    Introduction,
    Source,
    derive_key,
    encode,
)
from fieldagent.wire.fragments import split

TIME = 1_790_000_000
MOMENT = datetime.fromtimestamp(TIME, UTC)
ADA = Identity("42", "Ada", "User", "ada@example.org", "7")


async def take_in(inbox: Inbox, body: bytes) -> None:
    taken = await inbox.store_message(
        body, lambda db: None, channel="Satellite", receipt_channel=None, is_tagged=True
    )
    assert not taken.owed and not taken.reports


@asynccontextmanager
async def spool(path: Path, **how: Any) -> AsyncIterator[tuple[Inbox, Journal]]:
    journal = Journal(path / "journal.sqlite3")
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(journal.run)
            yield (
                Inbox(journal, ["script"], clock=lambda: TIME + 60.0, **how),
                journal,
            )
            nursery.cancel_scope.cancel()
    finally:
        journal.close()


def bodies(journal: Journal) -> list[Any]:
    rows = inbound.list_payloads(journal, 1000)
    return [json.loads(row["body"]) for row in reversed(rows)]


def events(journal: Journal) -> list[Any]:
    return [body["payloads"][0]["events"][0] for body in bodies(journal)]


async def test_packed_track_is_delivered_as_single_locations(tmp_path: Path) -> None:
    moments = [datetime.fromtimestamp(TIME + 300 * number, UTC) for number in range(4)]
    track = [
        Entry(9 + number, Location(46.5 + number / 1000, 7.25, moment), TIME + 300 * number)
        for number, moment in enumerate(moments)
    ]
    async with spool(tmp_path) as (inbox, journal):
        await take_in(inbox, encode(track, origin=42, is_packed=True))
        # The same items arrive over another route.
        for entry in track:
            await take_in(inbox, encode([entry], origin=42))
        positions = [(event["timestamp"], event["latitude"]) for event in events(journal)]
        assert positions == [
            ("2026-09-21T14:13:20Z", "46.5"),
            ("2026-09-21T14:18:20Z", "46.501"),
            ("2026-09-21T14:23:20Z", "46.502"),
            ("2026-09-21T14:28:20Z", "46.503"),
        ]


EVENTS: list[tuple[Item, dict[str, str | float]]] = [
    (Message("hé"), {"type": "Message", "timestamp": "2026-09-21T14:13:20Z", "content": "hé"}),
    (
        Data(b"\x00\xff"),
        {"type": "Data", "timestamp": "2026-09-21T14:13:20Z", "payload": "AP8="},
    ),
    (
        Location(-33.5, 151.25, MOMENT),
        {
            "type": "Location",
            "timestamp": "2026-09-21T14:13:20Z",
            "latitude": "-33.5",
            "longitude": "151.25",
        },
    ),
    (
        Location(47.3769123, 8.0, MOMENT, 408.0, 1.5, 270.0),
        {
            "type": "Location",
            "timestamp": "2026-09-21T14:13:20Z",
            "latitude": "47.3769123",
            "longitude": "8",
            "altitude": 408.0,
            "speedOverGround": 1.5,
            "courseOverGround": 270.0,
        },
    ),
    (
        Waypoint(1.0, 2.0, "Hut", MOMENT, "water"),
        {
            "type": "Waypoint",
            "timestamp": "2026-09-21T14:13:20Z",
            "latitude": "1",
            "longitude": "2",
            "name": "Hut",
            "notes": "water",
        },
    ),
]


@pytest.mark.parametrize(("item", "event"), EVENTS)
async def test_payload_json_matches_interface_document(
    tmp_path: Path, item: Item, event: dict[str, str | float]
) -> None:
    async with spool(tmp_path) as (inbox, journal):
        entries = [Entry(5, Introduction(ADA), TIME), Entry(1, item, TIME)]
        await take_in(inbox, encode(entries, origin=5))
        (body,) = bodies(journal)
        assert body == {
            "requestId": body["requestId"],
            "payloads": [
                {
                    "identity": {
                        "id": "42",
                        "name": "Ada",
                        "type": "User",
                        "email": "ada@example.org",
                    },
                    "account": {"id": "7"},
                    "events": [event],
                }
            ],
        }
        assert [len(part) for part in body["requestId"].split("-")] == [8, 4, 4, 4, 12]
        (listed,) = inbound.list_payloads(journal, 10)
        assert listed["hooks"] == {"script": {"state": "waiting", "attempts": 0, "reason": ""}}


async def test_introduction_is_used_for_later_messages_after_restart(tmp_path: Path) -> None:
    async with spool(tmp_path) as (inbox, _):
        await take_in(inbox, encode([Entry(5, Introduction(ADA), TIME)]))
    async with spool(tmp_path) as (inbox, journal):
        await take_in(inbox, encode([Entry(1, Message("x"), TIME)], origin=5))
        assert bodies(journal)[0]["payloads"][0]["identity"]["name"] == "Ada"


@pytest.mark.parametrize(
    "contact", [{"phone": "+41 79 000"}, {"phone": "1", "email": "a@b.example"}]
)
async def test_event_contains_contact_and_estimated_position_from_hub(
    tmp_path: Path, contact: dict[str, str]
) -> None:
    body = encode(
        [
            Entry(7, Message("call me"), TIME),
            Entry(7, Contact(**contact)),
            Entry(8, Message("plain"), TIME),
            Entry(9, Message("help"), TIME, sos=True),
            Entry(9, EstimatedPosition(46.5, -7.25, 3)),
        ]
    )
    async with spool(tmp_path) as (inbox, journal):
        await take_in(inbox, body)
        common = {"type": "Message", "timestamp": "2026-09-21T14:13:20Z"}
        where = {"latitude": "46.5", "longitude": "-7.25", "radius": 3000, "by": "operator"}
        assert events(journal) == [
            {**common, "content": "call me", **contact},
            {**common, "content": "plain"},
            {
                **common,
                "content": "help",
                "estimatedPosition": where,
                "incident": {"number": 9},
                "sos": True,
            },
        ]


async def test_duplicate_is_ignored_after_restart(tmp_path: Path) -> None:
    entry = Entry(1, Message("once"), TIME)
    for _ in range(2):
        async with spool(tmp_path) as (inbox, journal):
            await take_in(inbox, encode([entry]))
            # In another envelope and relative to another base time, it is still the same item.
            await take_in(inbox, encode([Entry(2, Message("other"), TIME - 99), entry]))
            assert [event["content"] for event in events(journal)] == ["once", "other"]


async def test_reused_number_with_other_content_is_no_duplicate(tmp_path: Path) -> None:
    async with spool(tmp_path) as (inbox, journal):
        for content in ("before the device was flashed", "after"):
            await take_in(inbox, encode([Entry(1, Message(content), TIME)]))
        await take_in(inbox, encode([Entry(1, Message("after"), TIME)], origin=9))
        assert len(events(journal)) == 3


async def test_fragments_are_joined_in_any_order_and_across_restarts(tmp_path: Path) -> None:
    whole = encode([Entry(8, Data(bytes(range(256)) * 3), TIME)])
    parts = [encode([Entry(8, part)]) for part in split(whole, 270)]
    assert len(parts) > 2
    for body in [parts[-1], parts[0], parts[-1], *parts[1:], *parts]:
        async with spool(tmp_path) as (inbox, journal):
            await take_in(inbox, body)
    async with spool(tmp_path) as (_, journal):
        assert len(events(journal)) == 1
        assert journal.read("SELECT count(*) FROM slice") == [(0,)]


def cut(content: str) -> list[bytes]:
    """Return messages with the fragments of item 8."""
    whole = encode([Entry(8, Message(content * 300), TIME)])
    return [encode([Entry(8, part)]) for part in split(whole, 120)]


async def test_fragments_of_reused_number_are_joined_after_repetition(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lost, newer = cut("a"), cut("b")
    assert len(lost) == len(newer) == 4
    async with spool(tmp_path) as (inbox, journal):
        for body in [*lost[:2], *newer[2:]]:
            await take_in(inbox, body)
        assert "wrong CRC-32" in caplog.text
        (item,) = inbound.list_incomplete(journal)
        assert inbound.read_committed_fragments(journal, item).keys() == {3}
        for body in newer[:3]:
            await take_in(inbox, body)
        assert [event["content"] for event in events(journal)] == ["b" * 300]


async def test_deleted_fragments_are_accepted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = cut("a")
    async with spool(tmp_path) as (inbox, journal):
        for body in parts[:3]:
            await take_in(inbox, body)
        await journal.commit(inbound.forget(end_time=TIME + 1000.0, keep_count=1))
        assert len(inbound.list_incomplete(journal)) == 1, "few fragments are kept in any case"
        monkeypatch.setattr(inbound, "FRAGMENTS_MAX", 2)
        await journal.commit(inbound.forget(end_time=TIME + 1000.0, keep_count=1))
        assert not inbound.list_incomplete(journal)
        for body in parts:
            await take_in(inbox, body)
        assert len(events(journal)) == 1


async def test_nested_fragments_are_ignored(tmp_path: Path) -> None:
    inner = split(encode([Entry(1, Message("x" * 300), TIME)]), 200)
    outer = split(encode([Entry(2, inner[0], TIME)]), 120)
    async with spool(tmp_path) as (inbox, journal):
        for part in outer:
            await take_in(inbox, encode([Entry(2, part)]))
        assert events(journal) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\xff\x00garbage", "not CBOR"),
        (bytes.fromhex("840900008401010061"), "not CBOR"),
        (bytes.fromhex("84070000840101006178"), "version 7"),
        (bytes.fromhex("84010000841863010061"), "not CBOR"),
        (bytes.fromhex("8401000084186301006178"), "kind 99 is unknown"),
    ],
)
async def test_unreadable_message_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, body: bytes, said: str
) -> None:
    async with spool(tmp_path) as (inbox, journal):
        await take_in(inbox, body)
        assert said in caplog.text
        assert events(journal) == []


async def test_only_messages_with_known_key_are_accepted(tmp_path: Path) -> None:
    old, new = derive_key(b"o" * 32, "MT"), derive_key(b"n" * 32, "MT")
    async with spool(tmp_path, keys=[new, old]) as (inbox, journal):
        for number, key in enumerate([old, new, derive_key(b"x" * 32, "MT"), None]):
            body = encode([Entry(number, Message(str(number)), TIME)], key=key)
            await take_in(inbox, body)
        assert [event["content"] for event in events(journal)] == ["0", "1"]


async def test_handed_over_payloads_are_deleted_and_waiting_payloads_kept(tmp_path: Path) -> None:
    async with spool(tmp_path) as (inbox, journal):
        for number in range(4):
            await take_in(inbox, encode([Entry(number, Message("x"), TIME)]))
        for row in inbound.list_payloads(journal, 10)[:3]:
            await journal.commit(inbound.mark_handed_over("script", row["requestId"], 1.0))
        await journal.commit(inbound.forget(end_time=0, keep_count=1))
        assert len(inbound.list_payloads(journal, 10)) == 2
        await journal.commit(inbound.forget(end_time=TIME + 1000.0, keep_count=1))
        (left,) = inbound.list_payloads(journal, 10)
        assert left["hooks"]["script"]["state"] == "waiting"


@pytest.mark.parametrize("is_read", [True, False])
async def test_read_receipt_is_reported_again_when_hub_sends_item(
    tmp_path: Path, is_read: bool
) -> None:
    """The item came by radio and was read before the hub had it."""
    item = Entry(7, Message("the bridge is out"), TIME, wants_receipt=True)
    copy = replace(item, sequence=90)
    async with spool(tmp_path) as (inbox, journal):

        def hear(db: sqlite3.Connection) -> None:
            inbox.store_entry(db, -5, item, ReceivedMessage(1.0))

        await journal.persist(hear)
        (listed,) = inbound.list_payloads(journal, 9)
        if is_read:
            assert await reading.store_reading(journal, inbox, listed["requestId"], "Ben")
        stages = inbound.list_pending_stages(journal)
        assert len(stages) == is_read
        await journal.persist(
            lambda db: inbound.mark_stages_reported(db, [each.key for each in stages])
        )
        assert inbound.list_pending_stages(journal) == []
        news = inbox.stages
        for _ in range(2):
            await take_in(inbox, encode([copy, Entry(90, Source(5, 7))], origin=42))
            assert [each.key for each in inbound.list_pending_stages(journal)] == [
                each.key for each in stages
            ]
        assert news.is_set() is is_read
        await journal.persist(
            lambda db: inbound.mark_stages_reported(db, [each.key for each in stages])
        )
        await take_in(inbox, encode([copy, Entry(90, Source(5, 7))], origin=42))
        assert inbound.list_pending_stages(journal) == []
        assert len(bodies(journal)) == 1
