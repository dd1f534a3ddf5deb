"""The hub's read API: permissions, pages, and the cost of a request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from xml.etree import ElementTree

import pytest

from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.query import query_pairs
from fieldagent.http.routes import make_router
from fieldagent.hub.access import credentials, directory
from fieldagent.hub.access.authentication import Authentication
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.api import reading
from fieldagent.hub.api.read_api import ReadApi
from fieldagent.hub.api.reading import END, ItemFilter
from fieldagent.hub.contract import Bearer
from fieldagent.hub.records.forgetting import delete_old_items
from fieldagent.hub.records.ledger import Posting, add_item
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import Data, Location, Message, Waypoint
from fieldagent.wire.envelope import Entry, Source
from tests.hub.field import GRACE, START, Field, field_of
from tests.hub.test_counts import Counted

TIME = int(START)
SUMMIT = Location(45.9766, 7.6585, datetime.fromtimestamp(TIME, UTC), 4478.0)


@dataclass
class Readers:
    """Ada is a User, Ben a dispatcher, and an Integration reads for a program."""

    alps: Field
    key: str
    tokens: dict[str, str]
    api: ReadApi

    async def ask(self, path: str, who: str = "ben", **headers: str) -> Response:
        target, _, query = path.partition("?")
        proof = {"x-api-key": self.key, "authorization": f"Bearer {self.tokens[who]}"}
        request = Request("GET", target, query_pairs(query), {**proof, **headers})
        try:
            admission = await make_router(self.api.make_routes())(request)
            return await admission.handler(request)
        except Problem as problem:
            return problem.make_response()

    async def look(self, path: str, who: str = "ben") -> Any:
        answer = await self.ask(path, who)
        assert answer.status == 200, answer.body
        return json.loads(answer.body)

    async def all_of(self, path: str, name: str, who: str = "ben") -> list[Any]:
        """Return the entries of all pages."""
        entries: list[Any] = []
        following: str | None = path
        while following is not None:
            page = await self.look(following, who)
            entries += page[name]
            following = page["next"]
        return entries

    async def texts(self, path: str, who: str = "ben") -> list[str]:
        return [each["event"].get("content") for each in await self.all_of(path, "items", who)]


@asynccontextmanager
async def readers(store: Store) -> AsyncIterator[Readers]:
    async with field_of(store) as alps:

        def settle_in(db: Db) -> tuple[str, dict[str, str]]:
            now = alps.now
            db.execute(
                "INSERT INTO member (id, type, name, created)"
                " VALUES (9, 'Integration', 'program', ?)",
                now,
            )
            directory.add_member(db, 1, 9, over_satellite=False, now=now)
            directory.set_role(db, 1, 2, "dispatcher", now=now)
            _, key = credentials.add_key(db, 1, "reader", scopes=["read"], now=now)
            _, pusher = credentials.add_key(db, 1, "pusher", now=now)
            members = {"ada": 1, "ben": 2, "cleo": 3, "program": 9}
            tokens = {
                name: credentials.add_token(db, member, name, now=now)[1]
                for name, member in members.items()
            }
            return key, {**tokens, "pusher": pusher}

        key, tokens = await store.commit(settle_in)
        authentication = Authentication(store, clock=alps.clock)
        yield Readers(alps, key, tokens, ReadApi(store, authentication, clock=alps.clock))


async def test_items_are_found_by_their_content(store: Store) -> None:
    async with readers(store) as hub:
        alps = hub.alps
        await alps.sends(1, Entry(1, Message("Straße is 50% clear"), TIME))
        alps.now += 60
        await alps.sends(3, Entry(1, Message("help"), TIME, sos=True))
        alps.now += 60
        await alps.sends(1, Entry(2, SUMMIT, TIME), Entry(3, Waypoint(1, 2, "Hut", notes="warm")))
        alps.now += 60
        await alps.push(Message("storm"), target=3)
        for query, texts in {
            "": ["storm", None, None, "help", "Straße is 50% clear"],
            "text=STRASSE": ["Straße is 50% clear"],
            "text=50%25": ["Straße is 50% clear"],
            "text=5_%25": [],
            "text=WARM": [None],
            "sender=3": ["help"],
            "kind=message": ["storm", "help", "Straße is 50% clear"],
            "sos=true": ["help"],
            "sos=false&kind=message": ["storm", "Straße is 50% clear"],
            f"since={START + 60}&until={START + 120}": [None, None, "help"],
            "since=2040-01-01": [],
            "until=2020-01-01T00:00:00Z": [],
            "sender=3&kind=location": [],
        }.items():
            assert await hub.texts(f"/api/items?{query}") == texts, query
            assert await hub.texts(f"/api/items?limit=1&{query}") == texts, query
        (sos,) = (await hub.look("/api/items?sos=true"))["items"]
        assert sos["sos"] and sos["device"] == "kit 3" and sos["sender"]["name"] == "Cleo"
        assert sos["accepted"] == START + 60
        one = await hub.look(f"/api/items/{sos['id']}")
        assert [each["id"] for each in one["devices"]] == [1, 2]
        assert one["webhooks"] == []


async def test_user_sees_own_items_and_dispatcher_sees_all(store: Store) -> None:
    async with readers(store) as hub:
        await hub.alps.push(Message("for Cleo"), target=3)
        await hub.alps.push(Message("for Ben, from Cleo"), target=2, sender=3)
        await hub.alps.sends(3, Entry(1, Message("for all"), TIME))
        everything = ["for all", "for Ben, from Cleo", "for Cleo"]
        assert await hub.texts("/api/items", "ben") == everything
        assert await hub.texts("/api/items", "program") == everything
        assert await hub.texts("/api/items", "cleo") == everything
        assert await hub.texts("/api/items", "ada") == ["for all", "for Cleo"]
        mine = await hub.all_of("/api/pushes", "pushes", "ada")
        assert [each["event"]["content"] for each in mine] == ["for Cleo"]
        assert len(await hub.all_of("/api/pushes", "pushes", "ben")) == 2
        items = [
            each["item"] for each in await hub.all_of("/api/deliveries?device=2", "deliveries")
        ]
        assert len(items) == 2
        assert (await hub.ask(f"/api/items/{items[1]}", "ada")).status == 404
        assert (await hub.ask(f"/api/items/{items[1]}", "cleo")).status == 200
        assert len(await hub.all_of("/api/deliveries?device=2", "deliveries", "ada")) == 1


async def test_device_items_are_those_from_or_addressed_to_the_device(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another kit's message to all also reached the device, but does not belong to its
    conversation.
    """
    async with readers(store) as hub:
        alps = hub.alps
        await alps.sends(1, Entry(1, Message("from kit 1"), TIME))
        await alps.push(Message("to Cleo"), target=3, sender=2)
        await alps.push(Message("to all"), sender=2)
        await alps.sends(3, Entry(1, Message("kit 3 to all"), TIME))
        await alps.push(Message("from Ada at her desk"), target=2, sender=1)
        await alps.sends(3, Entry(2, Message("again"), TIME))
        third = ["again", "kit 3 to all", "to all", "to Cleo"]
        for most in (1_000, 2, 1):
            # However few rows one request examines, nothing is left out or doubled.
            monkeypatch.setattr(reading, "LOOKED_AT", most)
            for limit in ("", "&limit=1"):
                assert await hub.texts(f"/api/items?device=3{limit}") == third, most
                texts = await hub.texts(f"/api/items?device=1{limit}")
                assert texts == ["to all", "from kit 1"], most
        assert await hub.texts("/api/items?device=3&text=again") == ["again"]
        assert await hub.texts("/api/items?device=3", "ada") == ["again", "kit 3 to all", "to all"]
        assert await hub.texts("/api/items?device=99") == []


async def test_oldest_item_of_a_busy_device_is_found(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device has sent and received fewer items than one request examines, but more in total."""
    async with readers(store) as hub:
        await hub.alps.push(Message("the first"), target=3, sender=2)
        for number in range(1, 4):
            await hub.alps.sends(3, Entry(number, Message(f"from {number}"), TIME))
            await hub.alps.push(Message(f"to {number}"), target=3, sender=2)
        monkeypatch.setattr(reading, "LOOKED_AT", 5)
        assert await hub.texts("/api/items?device=3&text=the+first") == ["the first"]
        assert len(await hub.texts("/api/items?device=3")) == 7


async def test_request_without_read_permission_is_rejected_with_the_reason(store: Store) -> None:
    async with readers(store) as hub:
        reader, hub.key = hub.key, hub.tokens["pusher"]
        refused = await hub.ask("/api/items")
        assert refused.status == 403 and b"hub key add NAME --read" in refused.body
        hub.key = "wrong"
        assert (await hub.ask("/api/items")).status == 401
        hub.key = reader
        await hub.alps.store.commit(lambda db: directory.remove_member(db, 1, 1, now=START))
        assert (await hub.ask("/api/items", "ada")).status == 403


@pytest.mark.parametrize(
    "path",
    [
        "/api/items?kind=sms",
        "/api/items?sos=yes",
        "/api/items?sender=Ada",
        "/api/items?since=yesterday",
        "/api/items?since=2026-13-01",
        "/api/items?limit=0",
        "/api/items?limit=1001",
        "/api/items?txt=a",
        "/api/positions?format=shp",
        "/api/deliveries",
        "/api/deliveries?state=lost&device=1",
        "/api/devices?state=lost",
    ],
)
async def test_invalid_query_parameter_is_reported_by_name(store: Store, path: str) -> None:
    async with readers(store) as hub:
        answer = await hub.ask(path)
        assert answer.status == 400
        name = path.partition("?")[2].partition("=")[0] or "device"
        assert name in json.loads(answer.body)["detail"]


async def test_positions_are_returned_as_geojson_gpx_and_kml(store: Store) -> None:
    async with readers(store) as hub:
        later = Location(46.0, 7.7, datetime.fromtimestamp(TIME + 60, UTC))
        await hub.alps.sends(1, Entry(1, SUMMIT, TIME))
        await hub.alps.sends(1, Entry(2, later, TIME + 60))
        await hub.alps.sends(2, Entry(1, Message("no position"), TIME))
        answer = await hub.ask("/api/positions")
        assert answer.content_type == "application/geo+json"
        features = json.loads(answer.body)["features"]
        places = [each["geometry"]["coordinates"] for each in features]
        assert places == [[7.7, 46.0], [7.6585, 45.9766, 4478.0]]
        assert features[0]["properties"]["device"] == "kit 1"
        await hub.alps.store.commit(
            lambda db: db.execute("UPDATE member SET name = '<Ada & Co>' WHERE id = 1")
        )
        answer = await hub.ask("/api/positions?limit=1", accept="application/gpx+xml")
        assert dict(answer.headers)["Link"].endswith('; rel="next"')
        answer = await hub.ask("/api/positions?format=gpx")
        space = "{http://www.topografix.com/GPX/1/1}"
        gpx = ElementTree.fromstring(answer.body)
        assert gpx.findtext(f"{space}trk/{space}name") == "<Ada & Co> (kit 1)"
        points = list(gpx.iter(f"{space}trkpt"))
        assert [each.get("lat") for each in points] == ["45.9766000", "46.0000000"]
        kml = "application/vnd.google-earth.kml+xml"
        answer = await hub.ask("/api/positions", accept=kml)
        assert answer.content_type == kml and b"<coordinates>7.7000000,46.0" in (answer.body or b"")


async def test_devices_show_their_last_contact_and_position(store: Store) -> None:
    async with readers(store) as hub:
        alps = hub.alps
        await alps.sends(1, Entry(1, SUMMIT, TIME))
        alps.now += 600
        await alps.sends(1, Entry(2, Location(1, 2), TIME - 60))
        devices = await hub.all_of("/api/devices?limit=1", "devices")
        assert [each["name"] for each in devices] == ["kit 3", "kit 2", "kit 1"]
        last = devices[-1]
        assert (last["lastContact"], last["over"]) == (START + 600, "ip")
        # A position that was in transit for long is not its current one.
        place = {"latitude": 45.9766, "longitude": 7.6585, "altitude": 4478.0, "at": START}
        assert (last["position"], devices[0]["position"]) == (place, None)
        assert last["imei"] and devices[0]["lastContact"] is None
        (mine, *_) = await hub.all_of("/api/devices", "devices", "ada")
        assert mine["imei"] is None


async def test_deliveries_are_listed_with_their_state(store: Store) -> None:
    async with readers(store) as hub:
        await hub.alps.push(Message("one"), target=3)
        await hub.alps.push(Message("two"), target=3)
        path = "/api/deliveries?device=3&state=waiting&limit=1"
        deliveries = await hub.all_of(path, "deliveries")
        assert [each["state"] for each in deliveries] == ["waiting"] * 2
        assert await hub.all_of("/api/deliveries?device=3&state=stored", "deliveries") == []
        assert (await hub.ask("/api/deliveries?device=99")).status == 404


def add_many(db: Db, count: int, text: str) -> None:
    for number in range(count):
        posting = Posting(1, 1, Message(text), TIME, 12, target=1, source=Source(1, number))
        add_item(db, posting, now=START, grace=GRACE)


async def test_search_is_limited_per_request_and_continues_on_the_next_page(store: Store) -> None:
    async with readers(store) as hub:
        await hub.alps.sends(1, Entry(1, Message("needle"), TIME))
        for _ in range(20):  # a transaction takes some seconds at most
            await store.commit(partial(add_many, count=reading.LOOKED_AT // 10 + 1, text="hay"))
        assert await hub.texts("/api/items?text=needle&limit=5") == ["needle"]
        caller = hub_caller()
        wanted = ItemFilter(text="needle")
        first = await store.read(lambda db: reading.find_items(db, caller, wanted, END, 5))
        assert first.numbers == [] and first.following is not None


def hub_caller() -> Caller:
    return Caller(1, "reader", 1, frozenset(["read"]), 2, "User", "Ben", "dispatcher", True)


async def test_page_of_items_takes_few_statements(store: Store) -> None:
    async with readers(store):
        await store.commit(partial(add_many, count=50, text="hay"))
        caller = hub_caller()

        def count(db: Db) -> int:
            counted = Counted(db)
            wanted = ItemFilter(text="a", since=START - 60, until=START + 60)
            look = reading.find_items(counted, caller, wanted, END, 40)
            assert len(reading.list_items(counted, look.numbers)) == 40
            reading.list_devices(counted, caller, END, 100, START)
            reading.list_deliveries(counted, caller, 1, None, END, 100, START)
            return len(counted.statements)

        # Two limits and a check, the items and their stages, the devices, deliveries, and the ends
        # of planned and existing ones.
        assert await store.read(count) == 5 + 1 + 3


async def test_page_ends_before_the_size_limit(store: Store) -> None:
    async with readers(store) as hub:
        for number in range(3):
            await hub.alps.sends(1, Entry(number + 1, Data(bytes(400_000)), TIME))
        assert len((await hub.look("/api/items"))["items"]) == 2
        assert len(await hub.all_of("/api/items", "items")) == 3


async def test_open_sos_is_kept_and_other_items_are_forgotten_in_slices(store: Store) -> None:
    async with readers(store) as hub:
        await hub.alps.sends(3, Entry(1, Message("help"), TIME, sos=True), bearer=Bearer.IP)
        await store.commit(partial(add_many, count=1_200, text="hay"))
        await store.commit(lambda db: db.execute("UPDATE delivery SET state = 'stored'"))
        later = START + 86_400
        counts = []
        while dropped := await store.commit(partial(delete_old_items, before=later, now=later)):
            counts.append(dropped)
        assert counts == 12 * [100]
        assert await hub.texts("/api/items") == ["help"]
        await store.commit(lambda db: db.execute("UPDATE sos SET closed = ?", later + 1))
        assert await store.commit(partial(delete_old_items, before=later, now=later)) == 0
        assert await store.commit(partial(delete_old_items, before=later + 2, now=later)) == 1


def test_every_item_query_uses_an_index(store: Store) -> None:
    """Sorting or searching a whole table would grow with the database."""
    if type(store).__name__ != "SqliteStore":
        pytest.skip("the plan of an empty table tells nothing there")
    caller = hub_caller()
    for wanted in (
        ItemFilter(),
        ItemFilter(sender=1),
        ItemFilter(kind="data"),
        ItemFilter(sos=True),
        ItemFilter(pushed=True),
        ItemFilter(since=1.0, until=2.0),
        ItemFilter(request_id="a"),
    ):

        def plan(db: Db, wanted: ItemFilter = wanted) -> list[str]:
            counted = Counted(db)
            reading.find_items(counted, caller, wanted, END, 10)
            return [
                str(line[3])
                for sql in counted.statements
                for line in db.execute(f"EXPLAIN QUERY PLAN {sql}", *[1] * sql.count("?"))
            ]

        lines = store.run_once(plan)
        # The few examined rows are sorted again, at a low cost.
        assert lines and not [line for line in lines if line.startswith("SCAN item")]
        assert sum("TEMP" in line for line in lines) <= 1
