"""A kit that must be at a place by a time, and the alarm if it is not."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fieldagent.extensions.places.hub import routes, shape
from fieldagent.extensions.places.hub.route_command import parse_due_time
from fieldagent.extensions.places.hub.routes import RoutePlan
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.records import sos
from fieldagent.hub.records.sos import Actor
from fieldagent.hub.store.contract import Store
from fieldagent.hub.store.opening import open_store
from fieldagent.package.package import Location
from fieldagent.wire.envelope import Entry
from tests.extensions.places.test_fences import told
from tests.hub.field import START, Field, field_of
from tests.hub.test_console import call, settle_in, sign_in
from tests.processes import MODULE, PATIENCE, Hub, administer, hub, until

HUT = shape.make_circle(45.9, 7.6, 300)
THERE, AWAY = Location(45.9, 7.6), Location(45.95, 7.6)
HOUR = 3_600.0
DUE = START + 4 * HOUR


async def add_route(alps: Field, due: float = DUE) -> None:
    plan = RoutePlan(1, "Hut", HUT, due, 1_800)
    await alps.store.commit(lambda db: routes.add_route(db, 1, plan, alps.now))


async def check_overdue_routes(alps: Field) -> list[str]:
    if await alps.store.read(routes.compute_next_due) > alps.now:
        return []
    return await alps.store.commit(lambda db: routes.check_overdue(db, alps.now))


async def send_position(alps: Field, number: int, place: Location, at: float) -> None:
    await alps.sends(1, Entry(number, place, int(at)))


async def get_route(alps: Field) -> Any:
    (route,) = await alps.store.read(lambda db: routes.list_routes(db, 1))
    return route


async def list_alarms(alps: Field) -> list[tuple[str, int]]:
    incidents = await alps.store.read(lambda db: sos.list_sos(db, 1, None, 99, 9))
    return [(each.kind, each.device) for each in incidents]


async def test_kit_missing_at_its_destination_is_overdue_once(store: Store) -> None:
    async with field_of(store) as alps:
        await add_route(alps)
        alps.now = START + 2 * HOUR + 600
        await send_position(alps, 1, AWAY, START + 2 * HOUR)
        alps.now = DUE + 1_799
        assert (
            await check_overdue_routes(alps) == []
            and (await get_route(alps))["state"] == "under way"
        )
        alps.now += 1
        (line,) = await check_overdue_routes(alps)
        assert "`fieldagent hub alarm show 1`" in line
        assert await told(alps) == [
            "kit 1 was to be at 'Hut' by 18:13 UTC, and is overdue since 18:43 UTC: no position"
            " within it has come. Its newest position is 45.95000 7.60000, of 16:13 UTC,"
            " 2 h 30 min old."
        ]
        assert await check_overdue_routes(alps) == [] and await list_alarms(alps) == [
            ("overdue", 1)
        ]
        # It arrives late, and a person closes the alarm.
        alps.now += HOUR
        await send_position(alps, 2, THERE, alps.now - 60)
        route = await get_route(alps)
        assert (route["state"], route["incident"]) == ("arrived", 1)
        events = await alps.rows("SELECT event, detail FROM sos_event ORDER BY id")
        assert ("heard", "a position within 'Hut', of 19:42 UTC") in [tuple(row) for row in events]
        assert await check_overdue_routes(alps) == []


async def test_route_with_a_damaged_destination_does_not_block_positions(store: Store) -> None:
    async with field_of(store) as alps:
        await add_route(alps)
        await add_route(alps)
        await store.commit(lambda db: db.execute("UPDATE route SET shape = '{' WHERE id = 1"))
        await send_position(alps, 1, THERE, START + 60)
        rows = await store.read(lambda db: routes.list_routes(db, 1))
        assert {each["id"]: each["state"] for each in rows} == {1: "under way", 2: "arrived"}
        # No position proves the arrival: a person ends the route, or gets the alarm.
        alps.now = DUE + 1_800
        assert len(await check_overdue_routes(alps)) == 1


async def test_arrival_in_time_prevents_the_alarm_even_if_reported_late(store: Store) -> None:
    async with field_of(store) as alps:
        await send_position(alps, 1, THERE, START - 60)
        await add_route(alps)
        # A position from before the start of the route proves nothing.
        assert (await get_route(alps))["state"] == "under way"
        alps.now = DUE + 600
        await send_position(alps, 2, AWAY, DUE)
        await send_position(alps, 3, THERE, DUE - HOUR)
        assert ((await get_route(alps))["state"], (await get_route(alps))["arrived"]) == (
            "arrived",
            DUE - HOUR,
        )
        alps.now = DUE + 2 * HOUR
        assert await check_overdue_routes(alps) == []


async def test_ended_route_requires_a_reason(store: Store) -> None:
    async with field_of(store) as alps:
        await add_route(alps)
        ben = Actor(2, "Ben")
        alps.now = DUE + 2 * HOUR
        assert "Its position is unknown." in (await check_overdue_routes(alps))[0]
        with pytest.raises(Refused, match="enter a reason"):
            await store.commit(lambda db: routes.end_route(db, 1, 1, ben, " ", alps.now))
        await store.commit(lambda db: routes.end_route(db, 1, 1, ben, "they called", alps.now))
        route = await get_route(alps)
        assert (route["state"], route["endedBy"], route["why"]) == ("ended", "Ben", "they called")
        with pytest.raises(Refused, match="no route 1 is active"):
            await store.commit(lambda db: routes.end_route(db, 1, 1, ben, "again", alps.now))
        assert await store.commit(lambda db: routes.forget(db, alps.now + 1)) == 1


async def test_past_due_time_is_refused(store: Store) -> None:
    async with field_of(store) as alps:
        with pytest.raises(Refused, match="14:13 UTC has passed"):
            await add_route(alps, START)


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("15:00", "2026-09-21T15:00"),
        ("14:13", "2026-09-22T14:13"),
        ("2026-09-23T18:00+02:00", "2026-09-23T16:00"),
        ("2026-09-23 18:00", "2026-09-23T18:00"),
    ],
)
def test_due_time_is_a_time_of_day_or_iso_8601(text: str, due: str) -> None:
    assert (
        parse_due_time(text, START) == datetime.fromisoformat(due).replace(tzinfo=UTC).timestamp()
    )


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00+14:00", "24:00"])
def test_impossible_due_time_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is not a time: use 18:00"):
        parse_due_time(text, START)


def test_overdue_alarm_is_raised_once_after_a_hub_outage(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    administer(
        database, "route", "add", "--kit", "kit-ada", "--to", "45.9,7.6,300", "--by", "18:00"
    )
    store = open_store(database)
    store.run_once(lambda db: db.execute("UPDATE route SET due = due - 90000"))
    for _ in range(2):
        with hub(tmp_path, {"database": database}) as there:
            until(lambda: store.run_once(lambda db: db.execute("SELECT id FROM sos")) != [])
            answers_calls(there)
    assert store.run_once(lambda db: db.execute("SELECT kind FROM sos")) == [("overdue",)]
    store.close()
    wrong = ("--kit", "kit-ada", "--to", "45.9,7.6,300", "--by", "soon", "--database", database)
    done = subprocess.run([*MODULE, "hub", "route", "add", *wrong], capture_output=True, text=True)
    assert done.returncode and "--by: 'soon' is not a time: use 18:00 (UTC)" in done.stderr
    assert administer(database, "route", "end", "1", "they called", "--by", "Olga")["ended"]
    shown = administer(database, "route", "list")[-1]
    assert (shown["state"], shown["why"], shown["endedBy"]) == ("ended", "they called", "Olga")


def answers_calls(there: Hub) -> None:
    """A dispatcher lists, adds and ends routes."""
    _, headers, _ = sign_in(there, "olga@example.org")
    mine = {"Cookie": headers["Set-Cookie"].partition(";")[0], "Origin": there.address}

    def said(method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        status, _, text = call(there, method, path, body, **mine, **headers)
        return status, json.loads(text)

    listed = said("GET", "/api/routes")[1]["routes"]
    assert [each["state"] for each in listed if each["id"] == 1] == ["overdue"]
    circle = {"latitude": 45.9, "longitude": 7.6, "radius": 300}
    plan = {"device": 1, "circle": circle, "due": "2099-01-01T18:00:00Z", "name": "Hut"}
    once = {"Idempotency-Key": "the hut"}
    status, made = said("POST", "/api/routes", plan, **once)
    assert (status, made["state"], made["margin"]) == (201, "under way", 1_800)
    assert said("POST", "/api/routes", plan, **once) == (201, made), "its first answer was lost"
    status, problem = said("POST", "/api/routes", {**plan, "due": "2020-01-01T18:00:00Z"})
    assert status == 409 and "2020-01-01 18:00 UTC has passed" in problem["detail"]
    assert said("POST", "/api/routes", {**plan, "device": 99})[0] == 409
    assert said("POST", "/api/routes", {**plan, "margin": -1})[0] == 422
    path = f"/api/routes/{made['id']}/end"
    status, ended = said("POST", path, {"why": "they called"})
    assert (status, ended["state"], ended["endedBy"]) == (200, "ended", "Olga")
    assert said("POST", path, {"why": "again"})[0] == 409
    assert said("POST", "/api/routes/999/end", {"why": "which?"})[0] == 404


def test_due_time_is_printed_in_local_time(database: str) -> None:
    administer(database, "init", "Alps")
    administer(database, "user", "add", "Ada")
    administer(database, "device", "add", "kit-ada", "--user", "Ada")
    route = ["--kit", "kit-ada", "--to", "45.91,7.61,300", "--by", "2036-11-26T18:00+01:00"]
    command = [*MODULE, "hub", "route", "add", *route, "--database", database]
    zone = {**os.environ, "TZ": "Europe/Zurich"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=zone)
    assert done.stdout.splitlines()[1] == "due: 2036-11-26 18:00:00"
