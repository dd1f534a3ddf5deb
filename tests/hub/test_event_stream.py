"""The events for listeners at the hub, and the places from which they continue."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import trio

from fieldagent.http.problem import Problem
from fieldagent.http.server_sent import StreamRequest
from fieldagent.hub.access import credentials, directory
from fieldagent.hub.access.caller import Call, Caller, Proof, Purpose, authorize_calls
from fieldagent.hub.api import sos_desk
from fieldagent.hub.api.event_stream import HELD_ROWS_MAX, ROWS_PER_READ, EventStreams, Follower
from fieldagent.hub.records.lease import Leases
from fieldagent.hub.records.sos import find_incident, raise_incident
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry
from tests.hub.field import START, Field, field_of
from tests.hub.test_read_api import add_many, hub_caller
from tests.processes import PATIENCE, administer, agent, hub

TIME = int(START)
ALL = frozenset(["item", "sos", "alarm"])


@asynccontextmanager
async def field_with_listener(store: Store) -> AsyncIterator[Field]:
    """Yield the field and `hub_caller`, who may listen."""
    async with field_of(store) as alps:

        def settle_in(db: Db) -> None:
            directory.set_role(db, 1, 2, "dispatcher", now=START)
            assert credentials.add_key(db, 1, "reader", scopes=["read"], now=START)[0] == 1

        await store.commit(settle_in)
        yield alps


class Listener:
    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._text = ""
        self.last = ""

    async def next(self) -> tuple[str, Any]:
        while True:
            event, end, rest = self._text.partition("\n\n")
            if end:
                self._text = rest
                if not event.startswith(":"):
                    place, topic, data = (line.partition(": ")[2] for line in event.split("\n"))
                    self.last = place
                    return topic, json.loads(data)
            else:
                with trio.fail_after(PATIENCE):
                    self._text += (await anext(self._pieces)).decode()

    async def texts(self, count: int) -> list[str]:
        return [(await self.next())[1]["event"]["content"] for _ in range(count)]


def open_stream(
    alps: Field, last: str = "", topics: frozenset[str] = ALL, caller: Caller | None = None
) -> Any:
    judge = Mock()
    leases = Leases(alps.store, "here", clock=alps.clock)
    streams = EventStreams(alps.store, judge, leases, clock=alps.clock)
    return aclosing(streams.stream_events(caller or hub_caller(), StreamRequest(topics, last)))


def acknowledge_sos(db: Db) -> None:
    incident = find_incident(db, 1, 1)
    assert incident is not None
    sos_desk.acknowledge(db, incident, 2, "coming", START)


async def test_items_and_sos_changes_are_sent_as_events(store: Store) -> None:
    async with field_with_listener(store) as alps:
        await alps.sends(1, Entry(1, Message("before"), TIME))
        async with open_stream(alps) as pieces:
            listener = Listener(pieces)
            assert (await anext(pieces)).startswith(b": listening")
            await alps.sends(1, Entry(2, Message("help"), TIME, sos=True))
            events = [await listener.next() for _ in range(3)]
            assert {topic for topic, _ in events} == {"item", "sos"}
            await store.commit(acknowledge_sos)
            topic, document = await listener.next()
            assert (topic, document["state"]) == ("sos", "seen")
            assert document["event"]["by"]["name"] == "Ben"


@pytest.mark.parametrize("topics", [ALL, {"sos"}, {"alarm"}])
async def test_alarm_has_its_own_event(store: Store, topics: set[str]) -> None:
    async with (
        field_with_listener(store) as alps,
        open_stream(alps, topics=frozenset(topics)) as pieces,
    ):
        listener = Listener(pieces)
        await anext(pieces)
        await store.commit(lambda db: raise_incident(db, 1, 1, None, alps.now, kind="fence"))
        await alps.sends(1, Entry(1, Message("help"), TIME, sos=True))
        wanted = [*(["fence"] if "alarm" in topics else []), *(["sos"] if "sos" in topics else [])]
        kinds: list[str] = []
        while len(kinds) < len(wanted):
            topic, document = await listener.next()
            if topic != "item":
                assert topic == ("sos" if document["kind"] == "sos" else "alarm")
                kinds.append(document["kind"])
        assert kinds == wanted


@pytest.mark.parametrize(
    "end",
    [
        lambda db: directory.set_disabled(db, "member", 2, START, now=START),
        lambda db: directory.set_role(db, 1, 2, "member", now=START),
        lambda db: db.execute("UPDATE credential SET revoked = ?", START),
    ],
)
async def test_stream_ends_when_the_listener_loses_permission(store: Store, end: Any) -> None:
    async with field_with_listener(store) as alps, open_stream(alps) as pieces:
        await anext(pieces)
        await store.commit(end)
        await alps.sends(1, Entry(1, Message("private"), TIME))
        with trio.fail_after(PATIENCE):
            assert [piece async for piece in pieces] == []


async def test_stream_ends_when_the_token_is_revoked(store: Store) -> None:
    """The key belongs to others too and stays valid."""
    async with field_with_listener(store) as alps:

        def come(db: Db) -> tuple[Caller | Problem | None, int]:
            _, key = credentials.add_key(db, 1, "team's", scopes=["read"], now=START)
            number, token = credentials.add_token(db, 2, "desk", now=START)
            proof = Proof(key, token=token)
            (answer,) = authorize_calls(db, [Call(proof, None, START, Purpose.READ)])
            return answer, number

        caller, token = await store.commit(come)
        assert isinstance(caller, Caller)
        async with open_stream(alps, caller=caller) as pieces:
            await anext(pieces)
            await alps.sends(1, Entry(1, Message("theirs"), TIME))
            assert b"theirs" in await anext(pieces)
            await store.commit(
                lambda db: credentials.revoke_credential(db, "token", 1, token, now=START)
            )
            await alps.sends(1, Entry(2, Message("private"), TIME))
            with pytest.raises(StopAsyncIteration), trio.fail_after(PATIENCE):
                await anext(pieces)


async def test_resumed_stream_loses_and_repeats_no_event(store: Store) -> None:
    async with field_with_listener(store) as alps:
        async with open_stream(alps, topics=frozenset(["item"])) as pieces:
            listener = Listener(pieces)
            await anext(pieces)
            for number in range(3):
                await alps.sends(1, Entry(number + 1, Message(f"{number}"), TIME))
            # Longer ago than another hub may need for a lower number.
            alps.now += 60
            assert await listener.texts(1) == ["0"]
        await store.commit(partial(add_many, count=2 * ROWS_PER_READ + 1, text="hay"))
        alps.now += 60
        async with open_stream(alps, listener.last, frozenset(["item"])) as pieces:
            texts = await Listener(pieces).texts(2 * ROWS_PER_READ + 3)
            assert texts == ["1", "2", *["hay"] * (2 * ROWS_PER_READ + 1)]


async def test_unread_stream_holds_few_large_items(store: Store) -> None:
    async with field_with_listener(store) as alps, open_stream(alps) as pieces:
        await anext(pieces)
        await store.commit(partial(add_many, count=ROWS_PER_READ, text="x" * 20_000))
        alps.now += 60
        read = 0
        while read < ROWS_PER_READ:
            with trio.fail_after(PATIENCE):
                piece = await anext(pieces)
            assert len(piece) < (HELD_ROWS_MAX + 1) * 20_000
            read += piece.count(b"event: item")
        assert read == ROWS_PER_READ


@pytest.mark.parametrize("last", ["9999.0", "0.9999", "abc", "1"])
async def test_unknown_last_event_id_is_reported_as_lost(store: Store, last: str) -> None:
    async with field_with_listener(store) as alps:
        await alps.sends(1, Entry(1, Message("before"), TIME))
        async with open_stream(alps, last) as pieces:
            assert (await Listener(pieces).next())[0] == "lost"


def test_event_with_a_lower_number_that_commits_late_is_sent() -> None:
    follower = Follower(0, 30.0)
    assert follower.select_fresh([(1, 0.0), (3, 1.0)], 2.0) == {1: 0, 3: 0}
    assert follower.select_fresh([(1, 0.0), (2, 0.5), (3, 1.0)], 3.0) == {2: 0}
    assert follower.select_fresh([(1, 0.0), (2, 0.5), (3, 1.0), (4, 39.0)], 40.0) == {4: 3}
    assert follower.select_fresh([(4, 39.0)], 41.0) == {}
    alone = Follower(0, 0.0)
    assert alone.select_fresh([(1, 0.0), (3, 1.0)], 1.0) == {1: 1, 3: 3}


def test_listener_receives_an_item_of_a_real_kit(tmp_path: Path, database: str) -> None:
    first = administer(database, "init", "Alps")
    administer(database, "user", "add", "Ada")
    token = administer(database, "device", "add", "kit-ada", "--user", "Ada")["hub-token"]
    key = administer(database, "key", "add", "desk", "--read")["apiKey"]
    proof = {"x-api-key": key, "Authorization": f"Bearer {first['token']}"}
    with hub(tmp_path, {"database": database}) as running:
        settings = {"satellite-port": None, "hub-address": running.address, "hub-token": token}
        connection = HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
        connection.request("GET", "/api/events", headers=proof)
        answer = connection.getresponse()
        assert answer.getheader("content-type") == "text/event-stream"
        assert answer.readline() == b": listening\n"
        with agent(tmp_path, settings) as kit:
            kit.post("hello")
            while not (line := answer.readline()).startswith(b"data:"):
                assert line
            assert json.loads(line[5:])["event"]["content"] == "hello"
        answer.close()
        connection.close()
