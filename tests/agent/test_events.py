"""The stream of events: a client that returns continues at its place and misses nothing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
from trio.testing import MockClock

from fieldagent.agent.events import CHECK_DELAY_S, Events
from fieldagent.agent.journal.schema import EVENTS_KEPT
from fieldagent.http.server_sent import LISTENING_COMMENT, StreamRequest
from tests.kit import kit
from tests.processes import PATIENCE, Agent, agent, sky


class Event(NamedTuple):
    id: str
    topic: str
    data: Any


class Listener:
    def __init__(self, response: HTTPResponse) -> None:
        self._response = response

    def next(self) -> Event:
        fields: dict[str, str] = {}
        while True:
            line = self._response.readline().decode()
            assert line, "the stream has ended"
            if line == "\n" and "data" in fields:
                return Event(fields["id"], fields["event"], json.loads(fields["data"]))
            name, _, text = line.rstrip("\n").partition(": ")
            if name:
                fields[name] = text

    def until(self, topic: str, **members: Any) -> Event:
        while True:
            event = self.next()
            if event.topic == topic and members.items() <= event.data.items():
                return event


@contextmanager
def listening(kit: Agent, topics: str = "", last: str = "") -> Iterator[Listener]:
    connection = HTTPConnection("127.0.0.1", kit.port, timeout=PATIENCE)
    path = f"/api/events?topics={topics}" if topics else "/api/events"
    connection.request("GET", path, headers={"Last-Event-ID": last} if last else {})
    response = connection.getresponse()
    assert response.readline() == b": listening\n"
    try:
        yield Listener(response)
    finally:
        connection.close()


def test_each_topic_is_streamed_separately(tmp_path: Path) -> None:
    with (
        sky(tmp_path, 0) as above,
        agent(tmp_path, {"inbound-hook": "true"}) as kit,
        listening(kit, "package") as packages,
        listening(kit, "sos") as alarms,
        listening(kit, "inbound") as inbound,
        listening(kit, "link") as links,
    ):
        assert links.next().data["channel"] == "Satellite"
        id_ = kit.post("x").body["id"]
        assert packages.next().data["id"] == id_
        packages.until("package", id=id_, status="Delivered")
        above.type("mt hello")
        (payload,) = inbound.next().data["payloads"]
        assert payload["events"][0]["content"] == "hello"
        kit.post("help", priority=100)
        declared = alarms.next()
        assert (declared.data["items"][0]["text"], declared.data["state"]) == ("help", "open")
        kit.call("DELETE", "/api/sos")
        alarms.until("sos", number=declared.data["number"], state="called off")
        assert all(int(each.id) for each in (declared, packages.next(), links.next()))


def test_returning_listener_misses_no_event_after_kill(tmp_path: Path) -> None:
    settings: dict[str, str | None] = {"satellite-port": None}
    last, numbers, posted = "", list[int](), list[int]()
    for _ in range(4):
        with agent(tmp_path, settings) as kit:
            with listening(kit, "package", last) as listener:
                if not last:
                    posted.append(kit.post("first").body["id"])
                while numbers[-1:] != posted[-1:]:
                    event = listener.next()
                    numbers.append(event.data["id"])
                    last = event.id
            # No client listens for these, and the agent is killed directly afterwards.
            posted += [kit.post(f"away {number}").body["id"] for number in range(5)]
    with agent(tmp_path, settings) as kit, listening(kit, "package", last) as listener:
        while numbers[-1] != posted[-1]:
            numbers.append(listener.next().data["id"])
    # The events are in order. A Package that changed between two reads appears once or twice.
    assert list(dict.fromkeys(numbers)) == posted


def test_listener_gets_more_events_than_one_read_holds(tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": None}) as kit:
        with listening(kit, "package") as listener:
            kit.post("x")
            last = listener.next().id
        ids = [kit.post(str(number)).body["id"] for number in range(250)]
        with listening(kit, "package", last) as listener:
            numbers = [listener.next().data["id"]]
            while numbers[-1] != ids[-1]:
                numbers.append(listener.next().data["id"])
    assert [each for each in dict.fromkeys(numbers) if each in ids] == ids


@pytest.mark.parametrize("last", ["never", "-1", "0", "1", "999999999999999", "9" * 40])
def test_unknown_last_event_id_is_reported_as_lost(tmp_path: Path, last: str) -> None:
    with agent(tmp_path, {"satellite-port": None}) as kit, listening(kit, "", last) as listener:
        lost = listener.next()
        assert (lost.topic, lost.data) == ("lost", {})
        id_ = kit.post("x").body["id"]
        assert int(listener.until("package", id=id_).id) > int(lost.id)


def test_deleted_events_are_reported_as_lost(tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": None}) as kit, listening(kit, "package") as listener:
        kit.post("x")
        last = listener.next().id
        kit.stop()
    with sqlite3.connect(tmp_path / "state/journal.sqlite3") as journal:
        journal.executemany(
            "INSERT INTO event (topic, subject) VALUES ('package', ?)",
            [(number,) for number in range(EVENTS_KEPT + 600)],
        )
        ((kept,),) = journal.execute("SELECT count(*) FROM event")
    journal.close()
    assert EVENTS_KEPT <= kept <= EVENTS_KEPT + 256
    with agent(tmp_path, {"satellite-port": None}) as kit, listening(kit, "", last) as listener:
        assert listener.next().topic == "lost"


async def test_slow_listener_gets_lost_event(tmp_path: Path) -> None:
    """When a queue of thousands is cleared, more events happen than are kept while one is read."""
    async with kit(tmp_path) as k:
        asked = StreamRequest(frozenset({"package"}))
        async with aclosing(Events(k.journal).listen(asked)) as stream:
            assert await anext(stream) == LISTENING_COMMENT
            await k.post()
            changed = [(k.sequence(),)] * (EVENTS_KEPT + 600)
            sql = "INSERT INTO event (topic, subject) VALUES ('package', ?)"
            await k.journal.commit(lambda db: db.executemany(sql, changed))
            assert b"event: lost\ndata: {}\n\n" in await anext(stream)
            await k.post()
            segment = await anext(stream)
            assert segment.count(b"event: ") == 1 and b'{"id": 2, ' in segment


async def test_conditions_are_checked_after_changes_and_at_signs_of_life(
    tmp_path: Path, clock: MockClock
) -> None:
    """Checks that can wait happen when the kit is awake for a sign of life."""
    looks = set[float]()
    async with kit(tmp_path) as k, trio.open_nursery() as nursery:
        events = Events(k.journal)

        async def look() -> None:
            while True:
                await events.wait_for_listener()
                looks.add(trio.current_time())
                await events.wait_until_check_due()

        async def listen(first: float) -> None:
            await trio.sleep_until(first)
            async for _ in events.listen(StreamRequest(frozenset({"link"}), quiet_max_s=4.0)):
                pass

        nursery.start_soon(look)
        # Each stream starts at its own moment, but both get their signs of life at the same one.
        nursery.start_soon(listen, 21.0)
        nursery.start_soon(listen, 22.5)
        await trio.sleep_until(33)
        assert looks == {21, 24, 28, 32}
        events.set_changed()
        await trio.sleep_until(39)
        assert looks == {21, 24, 28, 32, 33 + CHECK_DELAY_S, 36}
        nursery.cancel_scope.cancel()
