"""The largest and smallest values of each type on the air: stored, and then read by each list."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio

from fieldagent.agent.journal import inbound
from fieldagent.package.package import (
    Data,
    IncidentState,
    IncidentUpdate,
    Item,
    Location,
    Message,
    Waypoint,
)
from fieldagent.package.payload import Identity
from fieldagent.wire.envelope import EPOCH, Contact, Entry, EstimatedPosition, Introduction, encode
from tests.agent.inbound.test_reception import spool
from tests.processes import Agent, agent

UINT = 2**32 - 1
YEAR_1960, YEAR_2149 = -315_619_200, 5_648_659_200
TIMES = (EPOCH - UINT, YEAR_1960, -1, 0, 4_291_747_199, 4_291_747_200, YEAR_2149, EPOCH + UINT)
"""Unix times: the limits on the air, the limits of a Package, and their neighbours."""
TOP, BOTTOM = (90.0, 180.0), (-90.0, -180.0)
ITEMS: tuple[Item, ...] = (
    Location(*TOP, None, float(UINT), UINT / 10, 179.0),
    Location(*BOTTOM, None, -(2.0**32), 0.0, 180.0),
    Waypoint(*TOP, "", None, ""),
    Waypoint(*BOTTOM, "\0\x7f\u202e\ufffe" * 10, None, "</a>" * 10),
    Message(""),
    Message("\0\x01\u2028\U0010ffff"),
    Data(b""),
    *(IncidentUpdate(UINT, says, UINT, "\0", "\0") for says in IncidentState),
)
LISTS = (
    *("/api/positions", "/api/positions?format=gpx", "/api/positions?format=kml"),
    *("/api/inbound", "/api/track", "/api/packages", "/api/queue", "/api/people", "/api/sos"),
    *(
        "/api/neighbours",
        "/api/commands",
        "/api/mesh",
        "/api/status",
        "/api/health",
        "/api/signals",
    ),
    *("/api/forecast", "/metrics"),
)


def envelopes() -> Iterator[bytes]:
    """Yield each item at each time, and the other entries of lists, some as an SOS."""
    numbers = itertools.count(UINT, -1)
    for time in TIMES:
        entries = []
        for item, number in zip(ITEMS, numbers, strict=False):
            sos = number % 2 == 1 and not isinstance(item, IncidentUpdate)
            entries.append(Entry(number, item, time, sos, items_back=number if sos else 0))
            entries += [
                Entry(number, EstimatedPosition(*TOP, UINT)),
                Entry(number, Contact("\0", "\0")),
            ]
        yield encode(entries, origin=UINT)
    yield encode([Entry(UINT, Introduction(Identity("\0", "", "\0" * 9, "", "\0")))])


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    home = tmp_path_factory.mktemp("kit")
    (home / "state").mkdir()
    trio.run(store, home / "state")
    with agent(home, {"satellite-port": str(home / "nobody")}) as running:
        running.call("POST", "/api/package/async", {"location": {"latitude": 46, "longitude": 7}})
        yield running


async def store(state: Path) -> None:
    async with spool(state) as (inbox, journal):
        for body in envelopes():
            await inbox.store_message(
                body, lambda db: None, channel="Satellite", receipt_channel=None, is_tagged=True
            )
        assert len(inbound.list_payloads(journal, 1_000)) == len(TIMES) * len(ITEMS)


@pytest.mark.parametrize("path", LISTS)
def test_every_list_returns_extreme_values(kit: Agent, path: str) -> None:
    answer = kit.call("GET", path)
    assert answer.status == 200, answer.body


SPOILED = (
    ("inbound", "body", "{", "payload"),
    ("inbound", "body", '{"latitude":1,"payloads":[{"events":[{"latitude":"x"}]}]}', "payload"),
    ("package", "body", '{"location":{', "Package "),
    ("package", "status", "Vanished", "status 'Vanished'"),
    ("package", "accepted", 1e300, ""),
    ("leg", "status", "Lost", "status 'Lost'"),
)
"""A table, a column, a value that no program has stored, and the text in the log."""


@pytest.mark.parametrize(("table", "column", "value", "named"), SPOILED)
def test_every_list_leaves_out_unreadable_rows(
    kit: Agent, table: str, column: str, value: object, named: str
) -> None:
    received = len(kit.call("GET", "/api/inbound").body["payloads"])
    # The table `delivery` has no rowid.
    where = "1" if table == "leg" else f"rowid = (SELECT max(rowid) FROM {table})"
    with closing(sqlite3.connect(kit.home / "state" / "journal.sqlite3")) as journal:
        ((before,),) = journal.execute(f"SELECT {column} FROM {table} WHERE {where} LIMIT 1")
        with journal:
            journal.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))
        answers = {path: kit.call("GET", path) for path in LISTS}
        with journal:
            journal.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (before,))
    assert {path for path, answer in answers.items() if answer.status != 200} == set()
    assert len(answers["/api/inbound"].body["payloads"]) >= received - 1
    reports = [line for line in kit.output() if "cannot be read: lists leave it out" in line]
    assert named == "" or any(named in line for line in reports)
