"""The cloud push API at the socket, on both databases: accepted and refused requests."""

from __future__ import annotations

import base64
import ipaddress
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import trio

from fieldagent.http.client import Reply, request
from fieldagent.http.listeners import get_port, open_listeners
from fieldagent.http.routes import make_router
from fieldagent.http.server import serve
from fieldagent.hub.access import credentials, directory
from fieldagent.hub.access.attempts import BY_ADDRESS
from fieldagent.hub.access.authentication import Authentication
from fieldagent.hub.api import standing
from fieldagent.hub.api.push_api import HubApi
from fieldagent.hub.store import postgres, sqlite
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import Message, Waypoint
from fieldagent.system import scrypt
from fieldagent.system.rate import Rate, format_retry_after
from fieldagent.wire.envelope import decode
from tests.processes import PATIENCE
from tests.running import running

START = 1_790_000_000.0
MESSAGE = {
    "sourceUserId": "1",
    "workspaceId": "1",
    "targetUserId": "2",
    "message": {"content": "Storm at noon"},
}
LOCATION = {
    "sourceUserId": 1,
    "workspaceId": 1,
    "location": {"latitude": "47.1", "longitude": "8.2", "timestamp": "2026-09-21T14:00:00Z"},
}


@dataclass
class Cloud:
    """A hub's API with workspace 1: 1 is an integration, 2 Ada with a kit, 3 Ben with a
    password.
    """

    store: Store
    port: int = 0
    now: float = START
    key: str = ""
    token: str = ""
    others: dict[str, str] = field(default_factory=dict)

    def clock(self) -> float:
        return self.now

    async def push(
        self, body: Any, *, headers: dict[str, str] | None = None, path: str = "/api/package"
    ) -> Reply:
        all_headers = {
            "Content-Type": "application/json",
            "x-api-key": self.key,
            "Authorization": f"Bearer {self.token}",
            **(headers or {}),
        }
        return await request(
            "POST",
            f"http://127.0.0.1:{self.port}{path}",
            headers=tuple((name, value) for name, value in all_headers.items() if value),
            body=body if isinstance(body, bytes) else json.dumps(body).encode(),
            deadline=PATIENCE,
        )

    async def look(self, path: str, **headers: str) -> Reply:
        all_headers = {"x-api-key": self.key, "Authorization": f"Bearer {self.token}", **headers}
        url = f"http://127.0.0.1:{self.port}{path}"
        return await request("GET", url, headers=tuple(all_headers.items()), deadline=PATIENCE)

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return await self.store.read(lambda db: db.execute(sql))

    def settle_in(self, db: Db) -> None:
        now = self.now
        workspace = directory.add_workspace(db, "Alps", now=now)
        push = directory.add_user(db, workspace, "push", type_="Integration", now=now)
        ada = directory.add_user(db, workspace, "Ada", email="ada@example.org", now=now)
        hashed = scrypt.hash_password("of Ben: a long one")
        directory.add_user(db, workspace, "Ben", email="ben@example.org", password=hashed, now=now)
        directory.add_device(db, workspace, ada, directory.NewDevice("kit"), now=now)
        elsewhere = directory.add_workspace(db, "Andes", now=now)
        directory.add_user(db, elsewhere, "Cleo", now=now)
        _, self.key = credentials.add_key(db, workspace, "main", per_minute=600, burst=50, now=now)
        _, self.token = credentials.add_token(db, push, "main", now=now)
        _, self.others["few"] = credentials.add_key(
            db, workspace, "few", scopes=["location"], per_minute=6, burst=2, now=now
        )
        _, self.others["elsewhere"] = credentials.add_key(db, elsewhere, "there", now=now)
        _, self.others["short"] = credentials.add_key(
            db, workspace, "short", expires=now + 60, now=now
        )
        _, self.others["ada"] = credentials.add_token(db, ada, "ada", now=now)


@asynccontextmanager
async def cloud(store: Store, **how: Any) -> AsyncIterator[Cloud]:
    hub = Cloud(store)
    authentication = Authentication(store, clock=hub.clock, **how)
    api = HubApi(store, authentication, clock=hub.clock, grace=60, time_to_live=3600)
    listeners = open_listeners(0, ["127.0.0.1"])
    hub.port = get_port(listeners)
    stopping = trio.Event()
    async with running(store), trio.open_nursery() as nursery:
        await store.commit(hub.settle_in)
        await nursery.start(
            partial(serve, make_router(api.make_routes()), listeners, stop_event=stopping)
        )
        yield hub
        stopping.set()
        nursery.cancel_scope.cancel()


def basic(pair: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


async def test_accepted_push_returns_200_and_waits_for_its_target(store: Store) -> None:
    async with cloud(store) as hub:
        for body in (MESSAGE, LOCATION):
            reply = await hub.push(body)
            assert (reply.status, reply.body) == (200, b"")
        assert await hub.rows("SELECT device, state FROM delivery ORDER BY item") == [
            (1, "waiting"),
            (1, "waiting"),
        ]
        pushes = await hub.rows("SELECT actor, detail FROM audit WHERE action = 'push'")
        assert [actor for actor, _ in pushes] == ["1", "1"]
        details = " ".join(str(row) for row in await hub.rows("SELECT detail FROM audit"))
        assert hub.key not in details
        assert hub.token not in details


def record_statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record statements from now on, except BEGIN and COMMIT. On PostgreSQL each is a
    round trip.
    """
    statements = []

    def marked(sql: str) -> bytes:
        statements.append(sql)
        return sql.replace("?", "%s").encode()

    def counting(run: Callable[..., Any]) -> Callable[..., Any]:
        def counted(db: Any, sql: str, *parameters: Any) -> Any:
            statements.append(sql)
            return run(db, sql, *parameters)

        return counted

    monkeypatch.setattr(postgres, "_mark_parameters", marked)
    for name in ("execute", "write"):
        run = getattr(sqlite._SqliteDb, name)
        monkeypatch.setattr(sqlite._SqliteDb, name, counting(run))
    return statements


async def test_single_push_takes_few_statements(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cloud(store) as hub:
        statements = record_statements(monkeypatch)
        for repeatable, body in (
            ({}, MESSAGE),
            ({}, LOCATION),
            ({"Idempotency-Key": "a"}, MESSAGE),
        ):
            statements.clear()
            assert (await hub.push(body, headers=repeatable)).status == 200
            most = (6 if store.shared else 8) + (1 if store.shared else 2) * len(repeatable)
            # Beside them the store may prove that the database accepts writes.
            given = [each for each in statements if "INTO worker" not in each]
            assert len(given) <= most, given
        rates = await hub.rows("SELECT count(*) FROM credential WHERE tat > 0")
        lines = await hub.rows("SELECT count(*) FROM audit WHERE action = 'push'")
        assert (rates, lines) == ([(1,)], [(3,)])


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"x-api-key": ""}, "x-api-key is missing"),
        ({"x-api-key": "key_one, key_one"}, "x-api-key occurs more than once"),
        ({"Authorization": ""}, "Authorization must be"),
        ({"Authorization": "Digest x"}, "Authorization must be"),
        ({"Authorization": "Basic ***"}, "Authorization must be"),
        ({"x-api-key": "key_nobody"}, "wrong or expired"),
        ({"Authorization": "Bearer nobody"}, "wrong or expired"),
        (basic("ben@example.org:wrong"), "wrong or expired"),
        (basic("nobody:wrong"), "wrong or expired"),
        (basic("9" * 20 + ":wrong"), "wrong or expired"),
        (basic("0" * 20 + "3:of Ben: a long one"), "wrong or expired"),
        (basic("\u0663:of Ben: a long one"), "wrong or expired"),
        (basic("a\0b:wrong"), "Authorization must be"),
        (basic("ben@example.org:of Ben: a long one\0"), "Authorization must be"),
        (basic("ada@example.org:"), "wrong or expired"),
    ],
)
async def test_missing_or_wrong_credentials_return_401(
    store: Store, change: dict[str, str], detail: str
) -> None:
    async with cloud(store) as hub:
        reply = await hub.push(MESSAGE, headers=change)
        assert reply.status == 401
        assert "Bearer" in reply.headers["www-authenticate"]
        assert reply.headers["content-type"] == "application/problem+json"
        assert detail in json.loads(reply.body)["detail"]
        assert await hub.rows("SELECT * FROM item") == []


@pytest.mark.parametrize("name", ["3", "003", "ben@example.org", "Ben@Example.org"])
async def test_name_and_password_authenticate_like_a_token(store: Store, name: str) -> None:
    async with cloud(store) as hub:
        body = {**LOCATION, "sourceUserId": "3"}
        assert (await hub.push(body, headers=basic(f"{name}:of Ben: a long one"))).status == 200


async def test_mail_address_stored_with_capitals_matches_only_exactly(store: Store) -> None:
    async with cloud(store) as hub:
        change = "UPDATE member SET email = 'Ben@Example.org' WHERE id = 3"
        await store.commit(lambda db: db.execute(change))
        body, password = {**LOCATION, "sourceUserId": "3"}, "of Ben: a long one"
        for name, status in (("Ben@Example.org", 200), ("ben@example.org", 401)):
            answer = await hub.push(body, headers=basic(f"{name}:{password}"))
            assert answer.status == status


async def test_expired_and_revoked_keys_are_rejected(store: Store) -> None:
    async with cloud(store) as hub:
        short = {"x-api-key": hub.others["short"]}
        assert (await hub.push(MESSAGE, headers=short)).status == 200
        hub.now += 61
        assert (await hub.push(MESSAGE, headers=short)).status == 401
        await store.commit(lambda db: credentials.revoke_credential(db, "key", 1, 1, now=hub.now))
        assert (await hub.push(MESSAGE)).status == 401


@pytest.mark.parametrize(
    ("body", "headers", "detail"),
    [
        ({**LOCATION, "workspaceId": 2}, {}, "not for workspace 2"),
        ({**MESSAGE, "targetUserId": 4}, {}, "target 4 is not in workspace"),
        ({**MESSAGE, "sourceUserId": 4}, {}, "source 4 is not in workspace"),
        (MESSAGE, {"x-api-key": "few"}, "may not push a message"),
        (MESSAGE, {"Authorization": "ada"}, "in their own name"),
        ({**LOCATION, "workspaceId": 2}, {"x-api-key": "elsewhere"}, "user 1 may not push"),
    ],
)
async def test_push_without_permission_returns_403(
    store: Store, body: Any, headers: dict[str, str], detail: str
) -> None:
    async with cloud(store) as hub:
        named = {
            name: hub.others[value] if name == "x-api-key" else f"Bearer {hub.others[value]}"
            for name, value in headers.items()
        }
        reply = await hub.push(body, headers=named)
        assert reply.status == 403
        assert detail in json.loads(reply.body)["detail"]
        assert await hub.rows("SELECT * FROM item") == []


async def test_rate_limited_push_returns_429_with_exact_retry_after(store: Store) -> None:
    async with cloud(store) as hub:
        few = {"x-api-key": hub.others["few"]}
        statuses = [(await hub.push(LOCATION, headers=few)).status for _ in range(3)]
        assert statuses == [200, 200, 429]
        reply = await hub.push(LOCATION, headers=few)
        assert reply.headers["retry-after"] == "10"
        hub.now += 9.5
        reply = await hub.push(LOCATION, headers=few)
        assert (reply.status, reply.headers["retry-after"]) == (429, "1")
        hub.now += 0.5
        assert (await hub.push(LOCATION, headers=few)).status == 200
        assert (await hub.push(LOCATION)).status == 200


async def test_rate_limit_of_a_key_can_be_changed(store: Store) -> None:
    async with cloud(store) as hub:
        few = {"x-api-key": hub.others["few"]}
        ((id_,),) = await hub.rows("SELECT id FROM credential WHERE name = 'few'")
        for _ in range(2):
            assert (await hub.push(LOCATION, headers=few)).status == 200
        assert (await hub.push(LOCATION, headers=few)).status == 429
        changed = await store.commit(
            lambda db: credentials.set_rate(db, 1, id_, per_minute=None, burst=5, now=hub.now)
        )
        assert changed == {"id": id_, "perMinute": 6, "burst": 5}
        statuses = [(await hub.push(LOCATION, headers=few)).status for _ in range(4)]
        assert statuses == [200, 200, 200, 429]


async def test_keys_of_another_workspace_cannot_be_changed(store: Store) -> None:
    async with cloud(store) as hub:
        other = await store.commit(lambda db: directory.add_workspace(db, "Other", now=hub.now))
        for change in (
            lambda db: credentials.revoke_credential(db, "key", other, 1, now=hub.now),
            lambda db: credentials.revoke_credential(db, "token", other, 2, now=hub.now),
            lambda db: credentials.set_rate(db, other, 1, per_minute=1, burst=1, now=hub.now),
        ):
            with pytest.raises(directory.Refused, match="is active in that workspace"):
                await store.commit(change)
        assert (await hub.push(LOCATION)).status == 200


async def test_address_with_too_many_wrong_keys_is_blocked_temporarily(store: Store) -> None:
    async with cloud(store) as hub:
        for _ in range(BY_ADDRESS.burst):
            assert (await hub.push(MESSAGE, headers={"x-api-key": "guess"})).status == 401
        wrong = {"x-api-key": "guess"}
        reply = await hub.push(MESSAGE, headers=wrong)
        assert (reply.status, reply.headers["retry-after"]) == (429, "10")
        # Correct credentials pass, because others may share the address.
        assert (await hub.push(MESSAGE)).status == 200
        hub.now += 10
        assert (await hub.push(MESSAGE, headers=wrong)).status == 401


async def test_trusted_proxy_supplies_the_client_address(store: Store) -> None:
    trusted = [ipaddress.ip_network("127.0.0.0/8")]
    async with cloud(store, trusted_proxies=trusted) as hub:
        for _ in range(BY_ADDRESS.burst):
            guess = {"x-api-key": "guess", "X-Forwarded-For": "1.2.3.4, 198.51.100.7"}
            assert (await hub.push(MESSAGE, headers=guess)).status == 401
        for address, status in (("198.51.100.7", 429), ("1.2.3.4", 401), ("203.0.113.9", 401)):
            said = {"x-api-key": "guess", "X-Forwarded-For": address}
            reply = await hub.push(MESSAGE, headers=said)
            assert reply.status == status, address


async def test_forwarded_address_is_ignored_without_a_trusted_proxy(store: Store) -> None:
    async with cloud(store) as hub:
        for number in range(BY_ADDRESS.burst):
            guess = {"x-api-key": "guess", "X-Forwarded-For": f"198.51.100.{number}"}
            assert (await hub.push(MESSAGE, headers=guess)).status == 401
        guess = {"x-api-key": "guess", "X-Forwarded-For": "203.0.113.9"}
        assert (await hub.push(MESSAGE, headers=guess)).status == 429


@pytest.mark.parametrize(
    ("body", "status", "pointers"),
    [
        (b"{", 400, []),
        ({}, 422, ["", "/sourceUserId", "/workspaceId"]),
        ({**MESSAGE, "location": LOCATION["location"]}, 422, ["/message", "/location"]),
        ({**MESSAGE, "targetUserId": None}, 422, ["/targetUserId"]),
        ({**MESSAGE, "colapseKey": 1}, 422, ["/colapseKey"]),
        ({**MESSAGE, "sourceUserId": "me"}, 422, ["/sourceUserId"]),
        ({**MESSAGE, "targetUserId": "0" * 19 + "27"}, 422, ["/targetUserId"]),
        ({**MESSAGE, "targetUserId": "2" + "0" * 30}, 422, ["/targetUserId"]),
        ({**MESSAGE, "workspaceId": 10**30}, 422, ["/workspaceId"]),
        (
            {**LOCATION, "location": {"latitude": "91"}},
            422,
            ["/location/latitude", "/location/longitude"],
        ),
        ({**MESSAGE, "message": {"content": "x", "phone": 1}}, 422, ["/message/phone"]),
    ],
)
async def test_invalid_push_is_rejected_with_pointers_to_all_faults(
    store: Store, body: Any, status: int, pointers: list[str]
) -> None:
    async with cloud(store) as hub:
        reply = await hub.push(body)
        assert reply.status == status
        faults = json.loads(reply.body).get("errors", [])
        assert sorted(fault["pointer"] for fault in faults) == sorted(pointers)
        assert await hub.rows("SELECT * FROM item") == []


async def test_push_with_the_same_idempotency_key_is_stored_once(store: Store) -> None:
    async with cloud(store) as hub:
        once = {"Idempotency-Key": "a1"}
        assert (await hub.push(MESSAGE, headers=once)).status == 200
        assert (await hub.push(MESSAGE, headers=once)).status == 200
        assert (await hub.push(LOCATION, headers=once)).status == 422
        assert (await hub.push(MESSAGE, headers={"Idempotency-Key": "x" * 300})).status == 400
        assert len(await hub.rows("SELECT * FROM item")) == 1


def read_location(reply: Reply) -> str:
    assert (reply.status, reply.body) == (200, b"")
    return dict(reply.headers)["location"]


async def test_push_status_shows_the_state_of_each_device(store: Store) -> None:
    async with cloud(store) as hub:
        where = read_location(await hub.push(MESSAGE))
        for state, public_state in standing.STATES.items():
            await store.commit(partial(set_state, state))
            reply = await hub.look(where)
            answer = json.loads(reply.body)
            assert (reply.status, where) == (200, f"/api/push/{answer['id']}")
            assert answer["accepted"] == START
            assert answer["expires"] == START + 3600
            (device,) = answer["devices"]
            assert (device["name"], device["userId"], device["state"]) == ("kit", "2", public_state)


def set_state(state: str, db: Db) -> None:
    db.execute("UPDATE delivery SET state = ?", state)


async def test_repeated_push_is_accepted_after_the_target_has_left(store: Store) -> None:
    """The first answer was lost, and the target has left in the meantime. The item exists in any
    case.
    """
    async with cloud(store) as hub:
        once = {"Idempotency-Key": "a1"}
        first = read_location(await hub.push(MESSAGE, headers=once))
        await store.commit(lambda db: directory.remove_member(db, 1, 2, now=START))
        assert read_location(await hub.push(MESSAGE, headers=once)) == first
        assert (await hub.push(MESSAGE, headers={"Idempotency-Key": "a2"})).status == 403


async def test_same_idempotency_key_returns_the_same_location(store: Store) -> None:
    async with cloud(store) as hub:
        once = read_location(await hub.push(MESSAGE, headers={"Idempotency-Key": "a"}))
        assert read_location(await hub.push(MESSAGE, headers={"Idempotency-Key": "a"})) == once
        assert read_location(await hub.push(MESSAGE, headers={"Idempotency-Key": "b"})) != once


async def test_push_status_is_visible_only_to_authorised_callers(store: Store) -> None:
    async with cloud(store) as hub:
        where = read_location(await hub.push(MESSAGE))
        ada = f"Bearer {hub.others['ada']}"
        own = read_location(
            await hub.push({**MESSAGE, "sourceUserId": "2"}, headers={"Authorization": ada})
        )
        assert (await hub.look(where, Authorization=ada)).status == 404
        assert (await hub.look(own, Authorization=ada)).status == 200
        assert (await hub.look(own)).status == 200
        assert (await hub.look(where, **{"x-api-key": hub.others["elsewhere"]})).status in (
            403,
            404,
        )
        assert (await hub.look(where, Authorization="Bearer x")).status == 401
        assert (await hub.look("/api/push/%00")).status == 400
        for nothing in ("1", where[-36:].upper(), "00000000-0000-0000-0000-000000000000"):
            assert (await hub.look(f"/api/push/{nothing}")).status == 404


async def test_idempotency_key_belongs_to_its_caller(store: Store) -> None:
    async with cloud(store) as hub:
        once = {"Idempotency-Key": "a1"}
        assert (await hub.push(LOCATION, headers=once)).status == 200
        of_ada = {**once, "Authorization": f"Bearer {hub.others['ada']}"}
        for _ in range(2):
            reply = await hub.push({**LOCATION, "sourceUserId": 2}, headers=of_ada)
            assert reply.status == 200
        assert await hub.rows("SELECT sender FROM item ORDER BY id") == [(1,), (2,)]


async def test_phone_and_email_are_stored_with_the_message(store: Store) -> None:
    async with cloud(store) as hub:
        contact = {"phone": "+41 44 000", "email": "x@example.org"}
        body = {**MESSAGE, "message": {"content": "hi", **contact}}
        assert (await hub.push(body)).status == 200
        ((kept,),) = await hub.rows("SELECT contact FROM item")
        assert json.loads(kept) == contact


@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        ({"content": "x", "phone": "1" * 101}, "/message/phone"),
        ({"content": "x", "email": "é" * 128}, "/message/email"),
        ({"content": "x" * 100_000, "phone": "1"}, "/message/content"),
    ],
)
async def test_too_long_contact_details_of_a_message_are_rejected(
    store: Store, message: dict[str, str], pointer: str
) -> None:
    async with cloud(store) as hub:
        reply = await hub.push({**MESSAGE, "message": message})
        assert reply.status == 422
        assert [each["pointer"] for each in json.loads(reply.body)["errors"]] == [pointer]


async def test_target_limits_other_kinds_of_items_to_one_user(store: Store) -> None:
    async with cloud(store) as hub:
        await store.commit(partial(add_kit_of_ben, now=START))
        await hub.push(LOCATION)
        assert await hub.rows("SELECT device FROM delivery ORDER BY device") == [(1,), (2,)]
        payload = {"data": {"payload": "AAE="}}
        waypoint = {"waypoint": {"latitude": 47.1, "longitude": 8.2, "name": "Hut"}}
        for item in ({"location": LOCATION["location"]}, waypoint, payload):
            body = {"sourceUserId": 1, "workspaceId": 1, "targetUserId": "3", **item}
            assert (await hub.push(body)).status == 200
        rows = await hub.rows("SELECT device FROM delivery WHERE item > 1 ORDER BY item")
        assert rows == [(2,)] * 3


def add_kit_of_ben(db: Db, now: float) -> None:
    directory.add_device(db, 1, 3, directory.NewDevice("of Ben"), now=now)


AWKWARD = "\0 \x1b[2J \x7f \u0085 \u202e \U0001f600 \ufffe ' \" \\ ; -- %s ? {}"
"""NUL, which PostgreSQL accepts in no text, and other characters that cause problems."""


@pytest.mark.parametrize(
    "body",
    [
        {**MESSAGE, "message": {"content": AWKWARD, "phone": AWKWARD, "email": AWKWARD}},
        {
            **{name: LOCATION[name] for name in ("sourceUserId", "workspaceId")},
            "waypoint": {"latitude": 47.1, "longitude": 8.2, "name": AWKWARD, "notes": AWKWARD},
        },
    ],
)
async def test_any_text_is_stored_unchanged(store: Store, body: dict[str, Any]) -> None:
    async with cloud(store) as hub:
        assert (await hub.push(body)).status == 200
        ((kept, contact),) = await hub.rows("SELECT body, contact FROM item")
        (entry,) = decode(bytes(kept)).entries
        if isinstance(entry.content, Message):
            assert entry.content.content == AWKWARD
            assert json.loads(contact) == {"phone": AWKWARD, "email": AWKWARD}
        else:
            assert isinstance(entry.content, Waypoint)
            assert (entry.content.name, entry.content.notes) == (AWKWARD, AWKWARD)


async def test_concurrent_pushes_respect_the_rate_limit_exactly(store: Store) -> None:
    async with cloud(store) as hub:
        statuses: list[int] = []

        async def one() -> None:
            statuses.append((await hub.push(LOCATION)).status)

        async with trio.open_nursery() as nursery:
            for _ in range(70):
                nursery.start_soon(one)
        assert (statuses.count(200), statuses.count(429)) == (50, 20)
        assert len(await hub.rows("SELECT * FROM item")) == 50


def test_rate_limit_allows_a_burst_and_then_a_steady_flow() -> None:
    rate = Rate(per_minute=60, burst=3)
    tat, let_in = 0.0, []
    for now in (0.0, 0.0, 0.0, 0.0, 0.5, 1.0, 1.0, 9.0, 9.0, 9.0, 9.0):
        tat, wait = rate.admit(tat, now + START)
        let_in.append(not wait)
    assert let_in == [True, True, True, False, False, True, False, True, True, True, False]


@pytest.mark.parametrize(
    ("seconds", "header"), [(0.01, "1"), (1.0, "1"), (1.01, "2"), (59.999, "60")]
)
def test_retry_after_is_rounded_up_to_whole_seconds(seconds: float, header: str) -> None:
    assert format_retry_after(seconds) == header


def test_hashed_password_matches_only_the_right_password() -> None:
    stored = scrypt.hash_password("correct horse")
    assert scrypt.check_password("correct horse", stored)
    assert not scrypt.check_password("wrong horse", stored)
    assert not scrypt.check_password("", None)
    assert "correct" not in stored


async def test_key_deleted_during_an_upload_is_rejected(store: Store) -> None:
    """`fieldagent hub workspace delete` deletes the key with its workspace."""
    body = json.dumps(MESSAGE).encode()
    async with cloud(store) as hub:
        head = (
            f"POST /api/package HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"x-api-key: {hub.key}\r\nAuthorization: Bearer {hub.token}\r\n\r\n"
        )
        async with await trio.open_tcp_stream("127.0.0.1", hub.port) as caller:
            await caller.send_all(head.encode())
            assert (await caller.receive_some()).startswith(b"HTTP/1.1 100")
            await store.commit(lambda db: db.execute("DELETE FROM credential"))
            await caller.send_all(body)
            answer = await caller.receive_some()
        assert answer.startswith(b"HTTP/1.1 401"), answer
        assert await store.read(lambda db: db.execute("SELECT id FROM item")) == []
