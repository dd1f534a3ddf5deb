"""A kit that crosses a fence causes one alarm with the known facts."""

from __future__ import annotations

import json
import subprocess
from math import cos, sin, tau
from pathlib import Path
from typing import Any

import pytest
import trio

from fieldagent.extensions.places.hub import fences, shape
from fieldagent.extensions.places.hub.fences import FenceKits
from fieldagent.hub.access import people
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.api import reading
from fieldagent.hub.contract import Bearer
from fieldagent.hub.field import check_in
from fieldagent.hub.records import sos
from fieldagent.hub.records.stored_entry import decode_stored_entry
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import open_store
from fieldagent.hub.webhook import webhook_directory
from fieldagent.hub.webhook.webhook_directory import Webhook
from fieldagent.package.package import Location, Message, PositionSource
from fieldagent.wire.envelope import Entry
from tests.hub.claiming import claim
from tests.hub.field import START, Field, field_of
from tests.hub.test_console import call, settle_in, sign_in
from tests.hub.test_trackers import report, says, tracked
from tests.postgres import new_database
from tests.processes import MODULE, administer, hub
from tests.running import running

TIME = int(START)
FACE = shape.make_circle(45.9, 7.6, 500)
IN, OUT = Location(45.9, 7.6), Location(45.95, 7.6)


async def fence(alps: Field, tells: str = "both", *kits: str, group: str = "") -> int:
    return await alps.store.commit(
        lambda db: fences.add_fence(
            db, 1, "North face", FACE, tells, FenceKits(kits, group), alps.now
        )
    )


async def told(alps: Field) -> list[str]:
    """Return the texts of all alarms in order."""
    rows = await alps.rows("SELECT body FROM item WHERE sos = 2 ORDER BY id")
    said = [decode_stored_entry(body).content for (body,) in rows]
    return [each.content for each in said if isinstance(each, Message)]


async def alarms(alps: Field) -> list[tuple[int, str]]:
    rows = await alps.store.read(lambda db: sos.list_sos(db, 1, None, 99, 9))
    return [(each.device, each.state) for each in rows]


@pytest.mark.parametrize("rot", ["", "{", "[]", '{"circle": 5}', '{"polygon": {}}'])
async def test_damaged_fence_does_not_block_positions(store: Store, rot: str) -> None:
    async with field_of(store) as alps:
        damaged = await fence(alps)
        sql = "UPDATE fence SET name = 'South face', shape = ? WHERE id = ?"
        await store.commit(lambda db: db.execute(sql, rot, damaged))
        await fence(alps)
        await alps.sends(1, Entry(1, IN, TIME))
        alps.now += 1200
        await alps.sends(1, Entry(2, OUT, TIME + 1200))
        assert len(await told(alps)) == 1
        listed = await store.read(lambda db: fences.list_fences(db, 1))
        assert ["circle" in each for each in listed] == [False, True]
        await store.commit(lambda db: fences.remove_fence(db, 1, damaged, alps.now))


async def test_alarm_contains_both_positions_and_their_times(store: Store) -> None:
    async with field_of(store) as alps:
        hook = Webhook(0, "https://desk.example/")
        await store.commit(lambda db: webhook_directory.add_webhook(db, 1, hook, now=START))
        await fence(alps)
        await alps.sends(1, Entry(1, IN, TIME))
        assert await told(alps) == []
        alps.now += 1200
        await alps.sends(1, Entry(2, OUT, TIME + 1200))
        assert await told(alps) == [
            "kit 1's position of 14:33 UTC was outside 'North face' (45.95000 7.60000); the one"
            " before, of 14:13 UTC, inside"
        ]
        await store.commit(
            lambda db: db.execute("UPDATE webhook_delivery SET state = 'handed' WHERE item < 3")
        )
        (post,) = await store.commit(lambda db: claim(db, alps.now))
        ((event,),) = [each["events"] for each in json.loads(post.delivery.body)["payloads"]]
        assert event["fence"] and event["alarm"] == "fence" and event["incident"]["id"] == 1
        assert "sos" not in event and not post.delivery.sos and post.delivery.urgent
        assert post.delivery.alarm == "fence"
        numbers = [number for (number,) in await alps.rows("SELECT id FROM item WHERE sos = 2")]
        (shown,) = await store.read(lambda db: reading.list_items(db, numbers))
        assert (shown.encode()["sos"], shown.encode()["alarm"]) == (False, True)
        # Over satellite the result is the same, and it joins the open incident.
        alps.now += 7200
        await alps.sends(1, Entry(3, IN, TIME + 1300), bearer=Bearer.SATELLITE)
        _, second = await told(alps)
        assert second.endswith("the one before, of 14:33 UTC, outside; it came at 16:33 UTC")
        assert await alarms(alps) == [(1, "open")]


async def test_positions_are_judged_in_the_order_of_their_timestamps(store: Store) -> None:
    async with field_of(store) as alps:
        await fence(alps)
        alps.now += 1000
        await alps.sends(
            1, Entry(1, OUT, TIME + 900), Entry(2, IN, TIME + 300), Entry(3, OUT, TIME + 600)
        )
        assert len(await told(alps)) == 1
        # Late positions decide nothing, and neither do repeated ones.
        await alps.sends(1, Entry(4, IN, TIME + 800))
        again = Location(45.9, 7.6, source=PositionSource.LAST)
        await alps.sends(1, Entry(5, again, TIME + 1000))
        await alps.sends(1, Entry(1, OUT, TIME + 900))
        assert len(await told(alps)) == 1


async def test_alarm_and_its_position_are_stored_in_one_transaction(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with field_of(store) as alps:
        await fence(alps)
        await alps.sends(1, Entry(1, IN, TIME))
        alps.now += 60

        def dies(*_: object) -> None:
            raise OSError("the hub is killed before the commit")

        with monkeypatch.context() as change:
            # A later step of that transaction fails.
            change.setattr(check_in, "record_items", dies)
            with pytest.raises(OSError, match="is killed"):
                await alps.sends(1, Entry(2, OUT, TIME + 60))
        assert await alarms(alps) == []
        for _ in range(2):
            await alps.sends(1, Entry(2, OUT, TIME + 60))
        assert await alarms(alps) == [(1, "open")]
        assert len(await told(alps)) == 1


@pytest.mark.parametrize(
    ("tells", "words"), [("enter", ["was inside"]), ("leave", ["was outside"])]
)
async def test_fence_alarms_only_in_its_configured_direction(
    store: Store, tells: str, words: list[str]
) -> None:
    async with field_of(store) as alps:
        await fence(alps, tells)
        for number, place in enumerate([IN, OUT, IN], 1):
            alps.now += 60
            await alps.sends(2, Entry(number, place, int(alps.now)))
        texts = await told(alps)
        assert [word in text for word, text in zip(words, texts, strict=True)] == [True]


async def test_fence_applies_only_to_its_kits_and_groups(store: Store) -> None:
    async with field_of(store) as alps:

        def rope(db: Db) -> None:
            group = people.add_group(db, 1, "Rope", over_satellite=False, now=START)
            people.change_group(db, 1, group, join=frozenset({2}), now=START)

        await store.commit(rope)
        await fence(alps, "both", "kit 1", "2", group="Rope")
        group = await alps.store.read(lambda db: people.find_group(db, 1, "Rope"))
        with pytest.raises(Refused, match="'North face' is for this group: first remove"):
            await alps.store.commit(lambda db: people.remove_group(db, 1, group, now=alps.now))
        for number in (1, 2, 3):
            await alps.sends(number, Entry(1, IN, TIME), key=None)
        alps.now += 60
        for number in (1, 2):
            await alps.sends(number, Entry(2, OUT, TIME + 60))
        assert await alarms(alps) == [(2, "open")]


async def test_position_from_before_the_fence_counts(store: Store) -> None:
    async with field_of(store) as alps:
        await alps.sends(1, Entry(1, IN, TIME))
        await fence(alps)
        alps.now += 60
        await alps.sends(1, Entry(2, OUT, TIME + 60))
        assert await alarms(alps) == [(1, "open")]
        # After an incident is closed, the next crossing opens a new one.
        await store.commit(lambda db: sos.set_closed(db, 1, alps.now))
        alps.now += 60
        await alps.sends(1, Entry(3, IN, TIME + 120))
        assert sorted(await alarms(alps)) == [(1, "closed"), (1, "open")]


async def test_accuracy_of_a_tracker_position_is_respected(store: Store) -> None:
    async with field_of(store) as alps:
        device = await tracked(alps)
        await fence(alps)
        for seconds, north, accuracy in ((0, 45.9, 10), (60, 45.91, 2000), (120, 45.91, 10)):
            alps.now = START + seconds
            said = report(alps.now, north=north)._replace(accuracy=float(accuracy))
            said = said._replace(place={"latitude": north, "longitude": 7.6})
            await says(alps, said)
        assert await alarms(alps) == [(device, "open")]
        assert "those in between do not show the side" in (await told(alps))[0]


async def test_invalid_fence_operation_is_refused(store: Store) -> None:
    async with field_of(store) as alps:
        await fence(alps)
        with pytest.raises(Refused, match="a fence 'North face' already exists"):
            await fence(alps)
        with pytest.raises(Refused, match="no fence 7 is in"):
            await store.commit(lambda db: fences.remove_fence(db, 1, 7, START))
        await store.commit(lambda db: fences.remove_fence(db, 1, 1, START))
        with pytest.raises(Refused, match="no device 'hut' is in that workspace"):
            await fence(alps, "both", "hut")
        assert await store.read(lambda db: fences.list_fences(db, 1)) == []


@pytest.mark.full
async def test_three_hubs_on_one_database_raise_one_alarm(postgres: str) -> None:
    database = new_database(postgres)
    first, *others = (open_store(database) for _ in range(3))
    async with field_of(first) as alps, running(others[0]), running(others[1]):
        await fence(alps)
        await alps.sends(1, Entry(1, IN, TIME))
        alps.now += 100
        async with trio.open_nursery() as nursery:
            for number, store in enumerate((first, *others), 2):
                there = Field(store, now=alps.now)
                nursery.start_soon(there.sends, 1, Entry(number, OUT, TIME + number))
        assert await alarms(alps) == [(1, "open")]
        assert len(await told(alps)) == 1
    for store in (first, *others):
        store.close()


SQUARE = {
    "type": "Polygon",
    "coordinates": [[[7.5, 45.8], [7.7, 45.8], [7.7, 46.0], [7.5, 46.0], [7.5, 45.8]]],
}


def test_fence_is_added_listed_and_removed_by_command_and_api(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    drawn = tmp_path / "valley.geojson"
    drawn.write_text(json.dumps(SQUARE))
    administer(database, "fence", "add", "Valley", "--polygon", str(drawn), "--alarm-on", "leave")
    for points in (499, 600):
        around = [
            [7 + cos(turn * tau / points), 45 + sin(turn * tau / points)]
            for turn in (*range(points), 0)
        ]
        drawn.write_text(json.dumps({**SQUARE, "coordinates": [around]}))
        command = [*MODULE, "hub", "fence", "add", "Round", "--polygon", str(drawn)]
        done = subprocess.run([*command, "--database", database], capture_output=True, text=True)
        assert ("but can have 500 at most: simplify it" in done.stderr) is (points == 600)
    wrong = tmp_path / "wrong.geojson"
    wrong.write_text('{"type": "Polygon", "coordinates": [[[7, 45]]]}')
    refused = subprocess.run(
        [*MODULE, "hub", "fence", "add", "X", "--polygon", str(wrong), "--database", database],
        capture_output=True,
        text=True,
    )
    assert refused.returncode and f"{wrong}: the outline must have 4 points" in refused.stderr
    with hub(tmp_path, {"database": database}) as there:
        _, headers, _ = sign_in(there, "olga@example.org")
        mine = {"Cookie": headers["Set-Cookie"].partition(";")[0], "Origin": there.address}

        def said(method: str, path: str, body: Any = None) -> tuple[int, Any]:
            status, _, text = call(there, method, path, body, **mine)
            return status, json.loads(text) if text else None

        status, document = said("GET", "/api/fences")
        assert status == 200 and document["fences"][0]["polygon"] == SQUARE
        hut = {"latitude": 45.9, "longitude": 7.6, "radius": 100}
        name, drawing = "Round again", document["fences"][1]["polygon"]
        status, made = said("POST", "/api/fences", {"name": name, "polygon": drawing})
        assert status == 201 and said("DELETE", f"/api/fences/{made['id']}")[0] == 204
        status, made = said("POST", "/api/fences", {"name": "Hut", "circle": hut})
        assert (status, made["circle"], made["alarmOn"]) == (201, hut, "both")
        assert said("POST", "/api/fences", {"name": "Hut", "circle": hut})[0] == 409
        for body in ({"name": "X"}, {"name": "X", "circle": {**hut, "radius": 1}}):
            assert said("POST", "/api/fences", body)[0] == 422
        status, problem = said("POST", "/api/fences", {"name": "X", "polygon": {"type": "Polygon"}})
        assert status == 409 and "the Polygon has no coordinates" in problem["detail"]
        assert said("DELETE", f"/api/fences/{made['id']}")[0] == 204
        assert said("DELETE", f"/api/fences/{made['id']}")[0] == 404
    shown, document = administer(database, "fence", "list")
    assert len(document["polygon"]["coordinates"][0]) == 500
    assert (shown["name"], shown["alarmOn"], shown["devices"]) == ("Valley", "leave", None)
    assert administer(database, "fence", "remove", "1")["removed"]
