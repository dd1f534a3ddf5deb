"""The hub's log of an incident, step by step."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import trio

from fieldagent.hub.records import sos
from fieldagent.hub.service import incident_log
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry
from tests.hub.field import field_of
from tests.hub.raising import kit_of
from tests.hub.test_console import settle_in
from tests.hub.test_journey import receiver
from tests.processes import PATIENCE, administer, agent, hub, until, until_async

STEPS = {
    "raised": r"WARNING +SOS [0-9]{3} of kit-ada: raised",
    "nobody reached": r"WARNING +SOS [0-9]{3} of kit-ada: nobody reached",
    "escalated": r"WARNING +SOS [0-9]{3} of kit-ada: escalated: webhook 1",
    "seen": r"WARNING +SOS [0-9]{3} of kit-ada: seen by Olga: heli is up",
    "answered": r"WARNING +SOS [0-9]{3} of kit-ada: answered by Olga: where are you",
    "note": r"WARNING +SOS [0-9]{3} of kit-ada: note by Olga: two are with her",
    "called off": r"WARNING +SOS [0-9]{3} of kit-ada: called off by Ada",
    "closed": r"WARNING +SOS [0-9]{3} of kit-ada: closed by Olga: in hospital",
}


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Return the log of a hub with one complete incident."""
    home: Path = tmp_path_factory.mktemp("home")
    database = str(home / "hub.sqlite3")
    token = settle_in(database)
    with receiver() as pager:
        administer(database, "webhook", "add", pager.url, "--after", "10", "--untried")
        settings = {"database": database, "webhook-allow": "127.0.0.0/8"}
        with hub(home, settings) as running, agent(home, kit_of(running, token)) as kit:
            kit.call("POST", "/api/sos", {"text": "leg broken"})
            until(lambda: pager.got)
            for words in (
                ("acknowledge", "1", "heli is up"),
                ("answer", "1", "where are you"),
                ("note", "1", "two are with her"),
            ):
                administer(database, "sos", *words, "--by", "Olga")
            kit.call("DELETE", "/api/sos")
            until(lambda: administer(database, "sos", "show", "1")["calledOff"])
            administer(database, "sos", "close", "1", "in hospital", "--by", "Olga")
            running.expect("closed by Olga")
            yield running.output()


@pytest.mark.full
@pytest.mark.parametrize("step", STEPS)
def test_each_step_of_an_incident_has_one_log_line(lines: list[str], step: str) -> None:
    (line,) = [each for each in lines if re.search(STEPS[step], each)]
    assert line


async def test_kit_that_heard_the_sos_is_logged_with_its_user(store: Store) -> None:
    async with field_of(store) as field:
        await field.sends(1, Entry(1, Message("leg broken"), int(field.now), sos=True))
        ((item,),) = await field.rows("SELECT id FROM item")
        await store.commit(lambda db: sos.record_item_stored(db, item, 2, field.now))
        steps = await store.read(lambda db: incident_log._list_next_steps(db, 0, 10))
    assert [each.line for each in steps][-1] == "SOS 001 of kit 1: heard by Ben"


@pytest.mark.parametrize("kind", ["overdue", "fence", "operator", "watch"])
async def test_log_of_an_alarm_does_not_contain_sos(store: Store, kind: str) -> None:
    async with field_of(store) as field:
        await store.commit(lambda db: sos.raise_incident(db, 1, 1, None, field.now, kind=kind))
        (step,) = await store.read(lambda db: incident_log._list_next_steps(db, 0, 10))
    named = "no one on watch" if kind == "watch" else kind
    assert step.line.startswith(f"{named} 1 of kit 1: raised")
    assert "`fieldagent hub alarm acknowledge 1 --by USER`" in step.line
    assert "SOS" not in step.line


async def test_step_committed_late_by_another_hub_is_logged_once(
    store: Store, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Two hubs on one PostgreSQL get numbers in one order and commit in another."""
    if not database.startswith("postgresql:"):
        pytest.skip("a file is of one hub")
    caplog.set_level(logging.WARNING)

    def raised(db: Db) -> int:
        id_ = sos.raise_numbered(db, 1, 1, 7, None, time.time())
        assert id_ is not None
        return id_

    insert = "INSERT INTO sos_event (sos, at, event, detail) VALUES (%s, %s, %s, %s) RETURNING id"

    def logged() -> list[str]:
        return [record.message.partition(": ")[2] for record in caplog.records]

    async with field_of(store), trio.open_nursery() as nursery:
        id_ = await store.commit(raised)
        other: psycopg.Connection[tuple[int]] = psycopg.connect(database)
        early = other.execute(insert, (id_, time.time(), "note", "of before")).fetchone()
        nursery.start_soon(lambda: incident_log.run(store, clock=time.time))
        # After the log has started, each step has a line.
        with trio.fail_after(PATIENCE):
            while not logged():
                await store.commit(
                    lambda db: sos.record_event(db, id_, "note", time.time(), detail="later")
                )
                await trio.sleep(0.1)
        assert early is not None and "note: of before" not in logged()
        other.commit()
        await store.commit(lambda db: db.announce(sos.EVENTS))
        await until_async(lambda: "note: of before" in logged())
        assert logged().count("note: of before") == 1
        other.close()
        nursery.cancel_scope.cancel()
