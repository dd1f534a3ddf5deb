"""The administration API: the permitted acts in each workspace, and the audit log."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import trio

from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.query import query_pairs
from fieldagent.http.routes import Route, make_router
from fieldagent.hub.access import credentials, device_keys, directory, imei_claims, imeis
from fieldagent.hub.access.authentication import Authentication
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.access.imei_claims import CLAIMS, IS_CLAIMED
from fieldagent.hub.administration import api as administration
from fieldagent.hub.administration.acts import AdministrationContext
from fieldagent.hub.api import reading
from fieldagent.hub.contact.contract import ContactHost
from fieldagent.hub.contact.registry import ContactSenders
from fieldagent.hub.contract import Bearer, UnknownDevice
from fieldagent.hub.field import dead_letters
from fieldagent.hub.part import PartHost, list_hub_parts
from fieldagent.hub.records import sending, usage
from fieldagent.hub.records.usage_file import CountedDay
from fieldagent.hub.store.contract import Db, Store, insert
from fieldagent.hub.store.opening import open_store
from fieldagent.hub.webhook.reach import open_public
from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry, encode
from tests.hub.field import START, Field, field_of
from tests.hub.test_webhooks import receiver


@dataclass
class Office:
    """Workspace 1 is Alps: Ben administers it, Cleo is a dispatcher, Ada a member. Workspace 2 is
    Andes: Dora administers it and has a device there.
    """

    alps: Field
    keys: dict[str, str]
    tokens: dict[str, str]
    routes: list[Route]

    async def ask(
        self, method: str, path: str, body: Any = None, who: str = "ben", key: str | None = None
    ) -> Response:
        target, _, query = path.partition("?")
        proof = {"x-api-key": self.keys[who], "authorization": f"Bearer {self.tokens[who]}"}
        content = b"" if body is None else json.dumps(body).encode()
        if body is not None:
            proof["content-length"] = str(len(content))
        if key is not None:
            proof["idempotency-key"] = key
        request = Request(method, target, query_pairs(query), proof, content)
        try:
            admission = await make_router(self.routes)(request)
            return await admission.handler(request)
        except Problem as problem:
            return problem.make_response()

    async def done(self, method: str, path: str, body: Any = None, who: str = "ben") -> Any:
        answer = await self.ask(method, path, body, who)
        assert answer.status < 300, answer.body
        return json.loads(answer.body) if answer.body else None

    async def refused(
        self, method: str, path: str, body: Any = None, who: str = "ben"
    ) -> tuple[int, str]:
        answer = await self.ask(method, path, body, who)
        assert answer.status >= 400, answer.body
        return answer.status, answer.body.decode()

    async def acted(self, who: str = "ben") -> list[tuple[str, str, str]]:
        """Return user, action and detail of each audit line, the oldest first."""
        listed = (await self.done("GET", "/api/audit", who=who))["audit"]
        return [
            (each["by"].get("name", each["by"]["kind"]), each["action"], each["detail"])
            for each in reversed(listed)
        ]


@asynccontextmanager
async def office(store: Store) -> AsyncIterator[Office]:
    async with field_of(store) as alps:

        def settle_in(db: Db) -> tuple[dict[str, str], dict[str, str]]:
            now = alps.now
            if store.shared:
                # The field's rows have fixed numbers, which PostgreSQL would assign again.
                for table in ("workspace", "member", "device"):
                    db.execute("SELECT setval(pg_get_serial_sequence(?, 'id'), 100)", table)
            andes = directory.add_workspace(db, "Andes", now=now)
            dora = directory.add_user(db, andes, "Dora", now=now)
            members = {"ada": 1, "ben": 2, "cleo": 3, "dora": dora}
            directory.set_role(db, 1, 2, "administrator", now=now)
            directory.set_role(db, 1, 3, "dispatcher", now=now)
            directory.set_role(db, andes, dora, "administrator", now=now)
            directory.add_device(db, andes, dora, directory.NewDevice("kit dora"), now=now)
            _, key = credentials.add_key(db, 1, "office", scopes=["administer"], now=now)
            _, other = credentials.add_key(db, andes, "office", scopes=["administer"], now=now)
            _, pusher = credentials.add_key(db, 1, "pusher", now=now)
            keys = {name: other if name == "dora" else key for name in members}
            tokens = {
                name: credentials.add_token(db, member, name, now=now)[1]
                for name, member in members.items()
            }
            return {**keys, "by pusher": pusher}, {**tokens, "by pusher": tokens["ben"]}

        keys, tokens = await store.commit(settle_in)
        authentication = Authentication(store, clock=alps.clock)
        acts = AdministrationContext(store, authentication, clock=alps.clock)
        reach = open_public([ip_network("127.0.0.0/8")])
        nobody = ContactSenders(ContactHost(store, {}, "", reach, alps.clock), {})
        host = PartHost(store, authentication, alps.clock, Mock(), Mock(), nobody)
        routes = administration.make_routes(acts, alps.mobile_originated(), reach)
        routes += [route for part in list_hub_parts() for route in part.routes(host)]
        yield Office(alps, keys, tokens, routes)


async def test_audit_log_is_visible_only_to_administrators_of_the_workspace(store: Store) -> None:
    async with office(store) as hub:
        await hub.alps.push(Message("nothing of a push is here"), target=3)
        assert ("shell", "user role administrator", "2 in workspace 1") in await hub.acted()
        theirs = await hub.acted("dora")
        assert [action for _, action, _ in theirs] == [
            *("workspace add", "user join", "user add", "user role administrator"),
            *("device add", "key add", "token add"),
        ]
        assert not {*theirs} & {*await hub.acted()}
        first = await hub.done("GET", "/api/audit?limit=2")
        second = await hub.done("GET", first["next"])
        ids = [each["id"] for each in first["audit"] + second["audit"]]
        assert ids == sorted(ids, reverse=True)
        for who, why in {
            "ada": "an administrator",
            "cleo": "an administrator",
            "by pusher": "the key may not administer",
        }.items():
            status, detail = await hub.refused("GET", "/api/audit", who=who)
            assert (status, why in detail) == (403, True)
        assert (await hub.refused("GET", "/api/audit?limit=0"))[0] == 400


DEVICE = {"name": "kit eve", "userId": "1"}
IMEI = "300234010000077"


async def test_device_is_added_changed_and_deleted_with_audit_lines(store: Store) -> None:
    async with office(store) as hub:
        before = len(await hub.acted())
        made = await hub.done("POST", "/api/devices", {**DEVICE, "imei": IMEI, "tagged": True})
        device, path = made["id"], f"/api/devices/{made['id']}"
        assert (made["hubToken"][:5], len(bytes.fromhex(made["satelliteKey"]))) == ("link_", 32)
        kit = await store.read(lambda db: directory.find_device_of_token(db, made["hubToken"]))
        assert (kit.id, kit.workspace, kit.member, kit.imei) == (device, 1, 1, IMEI)
        for body, why in {
            ("name", "kit eve"): "a device 'kit eve' is already in",
            ("imei", IMEI): f"another device already has the IMEI {IMEI}",
        }.items():
            status, detail = await hub.refused(
                "POST", "/api/devices", {"name": "other", "userId": "1", **dict([body])}
            )
            assert (status, why in detail) == (409, True)
        changed = {"name": "kit evi", "imei": "300234010000078", "relay": True, "disabled": True}
        shown = await hub.done("PATCH", path, changed)
        assert {name: shown[name] for name in changed} == {**changed}
        shown = await hub.done("PATCH", path, {"disabled": False, "relay": False})
        assert (shown["name"], shown["disabled"], shown["relay"]) == ("kit evi", False, False)
        renewed = await hub.done("POST", f"{path}/token")
        with pytest.raises(UnknownDevice):
            await store.read(lambda db: directory.find_device_of_token(db, made["hubToken"]))
        assert (await hub.done("POST", f"{path}/key"))["satelliteKey"] != made["satelliteKey"]
        replacement = {"satelliteKey": "ab" * 32}
        assert await hub.done("POST", f"{path}/key", replacement) == {"deadLettersTaken": 0}
        assert await store.read(lambda db: device_keys.read_air_key(db, device)) == b"\xab" * 32
        await hub.done("DELETE", f"{path}/key")
        assert await store.read(lambda db: device_keys.read_air_key(db, device)) is None
        await hub.done("DELETE", path)
        with pytest.raises(UnknownDevice):
            await store.read(lambda db: directory.find_device_of_token(db, renewed["hubToken"]))
        assert (await hub.refused("DELETE", path))[0] == 404
        acts = (await hub.acted())[before:]
        assert {by for by, _, _ in acts} == {"Ben"}
        assert [action for _, action, _ in acts] == [
            *("device add", "device rename", "device imei", "device relay on", "device disable"),
            *("device relay off", "device enable", "device token", "device key", "device key"),
            *("device key", "device disable", "device delete"),
        ]
        for secret in (made["hubToken"], made["satelliteKey"], renewed["hubToken"], "ab" * 32):
            assert secret not in str(acts)


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("/api/devices", {"name": "x"}, "/userId"),
        ("/api/devices", {"name": "", "userId": "1"}, "/name"),
        ("/api/devices", {"name": "a\nb", "userId": "1"}, "/name"),
        ("/api/devices", {"name": "a\0b", "userId": "1"}, "/name"),
        ("/api/devices", {"name": "x" * 81, "userId": "1"}, "/name"),
        ("/api/devices", {"name": "x", "userId": 1}, "/userId"),
        ("/api/devices", {"name": "x", "userId": "0"}, "/userId"),
        ("/api/devices", {**DEVICE, "imei": "30023401000007"}, "/imei"),
        ("/api/devices", {**DEVICE, "imei": "３00234010000077"}, "/imei"),
        ("/api/devices", {**DEVICE, "operator": "x"}, "/operator"),
        ("/api/devices", {**DEVICE, "relay": 1}, "/relay"),
        ("/api/devices", {**DEVICE, "checkInEvery": 299}, "/checkInEvery"),
        ("/api/devices", {**DEVICE, "checkInBy": "24:00"}, "/checkInBy"),
        ("/api/devices", {**DEVICE, "checkInBy": "18:00", "checkInEvery": 300}, "/checkInBy"),
        ("/api/devices", {**DEVICE, "creditsPerDay": -1}, "/creditsPerDay"),
        ("/api/devices", {**DEVICE, "colour": "red"}, "/colour"),
        ("/api/users", {"name": "x", "role": "king"}, "/role"),
        ("/api/users", {"name": "x", "type": "Group"}, "/type"),
        ("/api/keys", {"name": "x", "scopes": []}, "/scopes"),
        ("/api/keys", {"name": "x", "scopes": ["push"]}, "/scopes"),
        ("/api/keys", {"name": "x", "burst": 0}, "/burst"),
        ("/api/keys", {"name": "x", "days": 0.5}, "/days"),
        ("/api/tokens", {"name": "x"}, "/userId"),
        ("/api/webhooks", {"url": "ftp://x"}, "/url"),
        ("/api/webhooks", {"url": "https://user:pass@example.org/"}, "/url"),
        ("/api/webhooks", {"url": "https://example.org/ä"}, "/url"),
        ("/api/webhooks", {"url": "https://example.org/", "secret": "x"}, "/secret"),
        ("/api/webhooks", {"url": "https://example.org/", "headers": {"a": "b\nc"}}, "/headers"),
        ("/api/webhooks", {"url": "https://example.org/", "after": 10_081}, "/after"),
    ],
)
async def test_invalid_body_is_rejected_with_a_pointer_to_the_field(
    tmp_path: Path, path: str, body: Any, where: str
) -> None:
    store = open_store(str(tmp_path / "hub.sqlite3"))
    async with office(store) as hub:
        before = await hub.acted()
        answer = await hub.ask("POST", path, body)
        errors = json.loads(answer.body)["errors"]
        assert (answer.status, [each["pointer"] for each in errors]) == (422, [where])
        assert await hub.acted() == before
    store.close()


async def test_administrators_add_and_change_users_but_not_themselves(store: Store) -> None:
    async with office(store) as hub:
        before = len(await hub.acted())
        eve = {"name": "Eve", "email": "eve@example.org", "role": "dispatcher", "signIn": True}
        made = await hub.done("POST", "/api/users", eve)
        path, member = f"/api/users/{made['id']}", int(made["id"])
        assert re.fullmatch("([a-z2-7]{4}-){3}[a-z2-7]{4}", made["password"])
        assert made["until"] == hub.alps.now + directory.ONE_TIME_LIFETIME_S
        for same in (eve, {**eve, "email": "Eve@Example.ORG"}):
            status, detail = await hub.refused("POST", "/api/users", same)
            assert (status, "a user with eve@example.org already exists" in detail) == (409, True)
        shown = await hub.done("PATCH", path, {"role": "administrator", "overSatellite": True})
        assert (shown["role"], shown["overSatellite"], shown["email"]) == (
            *("administrator", True),
            "eve@example.org",
        )
        program = await hub.done("POST", "/api/users", {"name": "bot", "type": "Integration"})
        assert program.keys() == {"id"}
        status, detail = await hub.refused(
            "PATCH", f"/api/users/{program['id']}", {"role": "dispatcher"}
        )
        assert (status, "is not a User" in detail) == (409, True)
        again = await hub.done("POST", f"{path}/password")
        assert again["password"] != made["password"]
        await hub.done("PATCH", path, {"disabled": True})
        await hub.done("PATCH", path, {"disabled": False})
        # Ben is the caller: he must remain an active administrator.
        for method, mine, body in (
            ("PATCH", "/api/users/2", {"role": "member"}),
            ("PATCH", "/api/users/2", {"disabled": True}),
            ("POST", "/api/users/2/password", None),
            ("DELETE", "/api/users/2", None),
        ):
            status, detail = await hub.refused(method, mine, body)
            assert (status, "another administrator" in detail) == (409, True), (method, mine)
        await hub.done("DELETE", path)
        assert (await hub.refused("DELETE", path))[0] == 404
        acts = (await hub.acted())[before:]
        assert {by for by, _, _ in acts} == {"Ben"}
        assert [action for _, action, _ in acts if action != "user join"] == [
            *("user add", "user role dispatcher", "user role administrator", "user add"),
            *("user password", "member disable", "member enable", "member disable"),
            "user delete",
        ]
        assert made["password"] not in str(acts) and "Eve" not in str(acts)
        gone = "SELECT 1 FROM member WHERE id = ?"
        assert await store.read(lambda db: db.execute(gone, member)) == []


async def test_last_administrator_remains_after_mutual_demotion(store: Store) -> None:
    async with office(store) as hub:
        await hub.done("PATCH", "/api/users/3", {"role": "administrator"})
        answers = []

        async def take(who: str, whom: int) -> None:
            answers.append(await hub.ask("PATCH", f"/api/users/{whom}", {"role": "member"}, who))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take, "ben", 3)
            nursery.start_soon(take, "cleo", 2)
        assert sorted(answer.status for answer in answers) == [200, 403]
        roles = "SELECT count(*) FROM membership WHERE workspace = 1 AND role = 'administrator'"
        assert await hub.alps.rows(roles) == [(1,)]


async def test_administrator_cannot_access_another_workspace(store: Store) -> None:
    """A caller from Alps tries each route with the ids of Andes."""
    async with office(store) as hub:
        andes = await hub.alps.rows(
            "SELECT device.id, member, workspace FROM device WHERE name = 'kit dora'"
        )
        ((device, dora, workspace),) = andes
        hook = await hub.done(
            "POST", "/api/webhooks", {"url": "https://example.org/", "untried": True}, "dora"
        )
        key = (await hub.done("GET", "/api/keys", who="dora"))["keys"][0]["id"]
        token = (await hub.done("GET", "/api/tokens", who="dora"))["tokens"][0]["id"]

        def come(db: Db) -> None:
            keep = partial(
                dead_letters.store_letter, db, reason="x", bearer=Bearer.SATELLITE, now=START
            )
            keep(b"of Andes", imei="1" * 15, device=device)
            keep(b"of nobody", imei="2" * 15, device=None)

        await store.commit(come)
        letters = {row["payload"]: row["id"] for row in await store.read(dead_letters.list_letters)}
        theirs = [
            ("PATCH", f"/api/devices/{device}", {"name": "mine"}),
            ("DELETE", f"/api/devices/{device}", None),
            ("POST", f"/api/devices/{device}/token", None),
            ("POST", f"/api/devices/{device}/key", None),
            ("DELETE", f"/api/devices/{device}/key", None),
            ("GET", f"/api/devices/{device}/usage", None),
            ("GET", f"/api/devices/{device}/commands", None),
            ("POST", f"/api/devices/{device}/commands", {"command": "status"}),
            ("PATCH", f"/api/users/{dora}", {"role": "member"}),
            ("DELETE", f"/api/users/{dora}", None),
            ("POST", f"/api/users/{dora}/password", None),
            ("PATCH", f"/api/keys/{key}", {"burst": 1}),
            ("DELETE", f"/api/keys/{key}", None),
            ("DELETE", f"/api/tokens/{token}", None),
            ("DELETE", f"/api/webhooks/{hook['id']}", None),
            ("POST", f"/api/webhooks/{hook['id']}/enable", None),
            ("POST", f"/api/webhooks/{hook['id']}/secret", None),
            ("POST", f"/api/webhooks/{hook['id']}/test", None),
            *(("DELETE", f"/api/dead-letters/{id_}", None) for id_ in letters.values()),
        ]
        before = await hub.acted(), await hub.acted("dora")
        for method, path, body in theirs:
            assert (await hub.refused(method, path, body))[0] == 404, (method, path)
            assert (await hub.refused(method, path, body, "cleo"))[0] == 403, (method, path)
        for path in ("/api/devices", "/api/tokens"):
            status, detail = await hub.refused("POST", path, {"name": "x", "userId": str(dora)})
            assert (status, '"/userId"' in detail) == (409, True)
        assert (await hub.done("GET", "/api/webhooks"))["webhooks"] == []
        assert (await hub.done("GET", "/api/dead-letters"))["deadLetters"] == []
        (mine,) = (await hub.done("GET", "/api/dead-letters", who="dora"))["deadLetters"]
        assert base64.b64decode(mine["payload"]) == b"of Andes"
        assert (await hub.acted(), await hub.acted("dora")) == before
        # A user of both workspaces has one account, which neither workspace may change alone.
        await store.commit(
            lambda db: directory.add_member(db, workspace, 3, over_satellite=False, now=START)
        )
        for method, path in (
            ("PATCH", "/api/users/3"),
            ("POST", "/api/users/3/password"),
            ("DELETE", "/api/users/3"),
        ):
            off = {"disabled": True} if method == "PATCH" else None
            status, detail = await hub.refused(method, path, off)
            assert (status, "also in another workspace" in detail) == (409, True)
        assert (await hub.done("PATCH", "/api/users/3", {"role": "member"}))["role"] == "member"


async def test_api_keys_and_tokens_are_shown_once_and_revoked(store: Store) -> None:
    async with office(store) as hub:
        made = await hub.done("POST", "/api/keys", {"name": "desk", "scopes": ["read"], "days": 2})
        path = f"/api/keys/{made['id']}"
        rate = {"id": made["id"], "perMinute": 9, "burst": 60}
        assert await hub.done("PATCH", path, {"perMinute": 9}) == rate
        listed = {each["name"]: each for each in (await hub.done("GET", "/api/keys"))["keys"]}
        assert listed["desk"] == {
            "name": "desk",
            "scopes": ["read"],
            "revoked": None,
            "expires": hub.alps.now + 172_800,
            **rate,
        }
        assert "key_" not in str(listed)
        for _ in range(2):
            assert await hub.done("DELETE", path) is None
        assert (await hub.refused("PATCH", path, {"burst": 1}))[0] == 409
        mine = listed["office"]["id"]
        status, detail = await hub.refused("DELETE", f"/api/keys/{mine}")
        assert (status, "uses that key" in detail) == (409, True)
        bot = await hub.done("POST", "/api/users", {"name": "bot", "type": "Integration"})
        token = await hub.done("POST", "/api/tokens", {"name": "bot", "userId": bot["id"]})
        assert token["token"].startswith("token_")
        status, detail = await hub.refused("POST", "/api/tokens", {"name": "x", "userId": "1"})
        assert (status, "cannot create a token for another person" in detail) == (409, True)
        for _ in range(2):
            await hub.done("DELETE", f"/api/tokens/{token['id']}")
        actions = [action for _, action, _ in await hub.acted()]
        assert (actions.count("key revoke"), actions.count("token revoke")) == (1, 1)


async def test_administration_calls_count_for_the_rate_limit_of_the_key(store: Store) -> None:
    async with office(store) as hub:
        keys = (await hub.done("GET", "/api/keys"))["keys"]
        mine = next(each["id"] for each in keys if each["name"] == "office")
        await hub.done("PATCH", f"/api/keys/{mine}", {"burst": 1, "perMinute": 1})
        hub.alps.now += 3600
        await hub.done("PATCH", "/api/devices/1", {"relay": True})
        answer = await hub.ask("PATCH", "/api/devices/1", {"relay": False})
        assert answer.status == 429 and dict(answer.headers)["Retry-After"]


async def test_webhook_tests_have_a_daily_limit_per_host(store: Store) -> None:
    async with office(store) as hub:
        made = await hub.done(
            "POST", "/api/webhooks", {"url": "https://127.0.0.1:9/a", "untried": True}
        )
        for _ in range(sending.ADDRESS_PER_DAY_MAX[sending.WEBHOOK] - 1):
            assert (await hub.ask("POST", f"/api/webhooks/{made['id']}/test")).status == 422
            hub.alps.now += 60
        other = {"url": "https://127.0.0.1:9/b"}
        assert (await hub.ask("POST", "/api/webhooks", other)).status == 422
        for path, body in (("/api/webhooks", other), (f"/api/webhooks/{made['id']}/test", None)):
            answer = await hub.ask("POST", path, body)
            assert answer.status == 429 and b"to one address" in answer.body
        # Tests of webhooks leave the other messages of the workspace alone.
        letter = partial(
            sending.record_message_or_refuse, workspace=1, address="a@example.org", now=hub.alps.now
        )
        assert await store.commit(lambda db: letter(db, kind=sending.LETTER)) == ""
        hub.alps.now += sending.DAY_S
        assert (await hub.ask("POST", f"/api/webhooks/{made['id']}/test")).status == 422


@pytest.mark.parametrize("what", sorted(sending.ADDRESS_PER_DAY_MAX))
async def test_each_kind_of_sending_is_limited_per_address_and_workspace(
    store: Store, what: str
) -> None:
    async with field_of(store) as alps:

        async def sends(address: str, count: int) -> int:
            refusal = partial(
                sending.record_message_or_refuse, workspace=1, address=address, kind=what, now=START
            )
            return [await alps.store.commit(lambda db: refusal(db)) for _ in range(count)].count("")

        most = sending.ADDRESS_PER_DAY_MAX[what]
        assert await sends("+41791234567", most + 1) == most
        left = sending.WORKSPACE_PER_DAY_MAX - most
        done = [await sends(f"+4179{n:07}", most) for n in range(left // most + 1)]
        assert sum(done) == left


@pytest.mark.parametrize("what", sorted({*sending.ADDRESS_PER_DAY_MAX} - {sending.WEBHOOK}))
async def test_sending_to_one_address_is_limited_across_workspaces(store: Store, what: str) -> None:
    async with field_of(store) as alps:

        def send(db: Db) -> list[int]:
            others = range(101, 106)
            rows = [(n, f"W{n}", START) for n in others]
            insert(db, "workspace", ("id", "name", "created"), rows)
            most = sending.ADDRESS_PER_DAY_MAX[what]
            refusal = partial(
                sending.record_message_or_refuse, db, address="+41791234567", kind=what, now=START
            )
            taken = [[refusal(each) for _ in range(most)].count("") for each in others]
            another = sending.record_message_or_refuse(db, others[-1], "+41791234568", what, START)
            assert another == "", "another number has a limit of its own"
            return taken

        most = sending.ADDRESS_PER_DAY_MAX[what]
        assert await alps.store.commit(send) == [most] * sending.ALL_WORKSPACES_FACTOR + [0, 0]


async def test_webhook_secret_is_replaced_and_shown_once(store: Store) -> None:
    async with office(store) as hub:
        body = {"url": "https://example.org/", "untried": True}
        made = await hub.done("POST", "/api/webhooks", body)
        path = f"/api/webhooks/{made['id']}/secret"
        renewed = await hub.done("POST", path)
        assert renewed["id"] == made["id"] and renewed["secret"] != made["secret"]
        stored = "SELECT secrets FROM webhook"
        assert await hub.alps.rows(stored) == [(f"{renewed['secret']} {made['secret']}",)]
        # If the answer is lost, a receiver that has the first secret would be left out.
        another, again = [await hub.ask("POST", path, {}, key="one") for _ in range(2)]
        assert another.body == again.body
        newest = json.loads(another.body)["secret"]
        assert await hub.alps.rows(stored) == [(f"{newest} {renewed['secret']}",)]
        replacement = {"secret": made["secret"], "only": True}
        assert await hub.done("POST", path, replacement) == made
        assert await hub.alps.rows(stored) == [(made["secret"],)]
        status, detail = await hub.refused("POST", path, {"secret": "x"})
        assert (status, '"/secret"' in detail) == (422, True)
        assert (await hub.refused("POST", path, None, "cleo"))[0] == 403


async def test_webhook_is_tested_before_the_addition(store: Store) -> None:
    async with office(store) as hub, receiver() as there:
        made = await hub.done("POST", "/api/webhooks", {"url": there.url, "after": 5})
        path = f"/api/webhooks/{made['id']}"
        assert made["secret"].startswith("whsec_") and len(there.got) == 1
        (listed,) = (await hub.done("GET", "/api/webhooks"))["webhooks"]
        assert (listed["url"], listed["signed"], listed["after"]) == (there.url, True, 5)
        assert made["secret"] not in str(listed)
        there.answers = [Response(500), Response(500)]
        for call, body in (("/api/webhooks", {"url": there.url}), (f"{path}/test", None)):
            status, detail = await hub.refused("POST", call, body)
            assert (status, "answered 500" in detail) == (422, True)
        status, detail = await hub.refused("POST", "/api/webhooks", {"url": "http://10.0.0.1/"})
        assert (status, "is not a public address" in detail) == (422, True)
        await hub.done("POST", f"{path}/test")
        await hub.done("POST", f"{path}/enable")
        bad = {"url": there.url, "untried": True, "headers": {"Host": "x"}}
        assert (await hub.refused("POST", "/api/webhooks", bad))[0] == 409
        plain = await hub.done(
            "POST", "/api/webhooks", {"url": there.url, "untried": True, "unsigned": True}
        )
        assert plain["secret"] == ""

        def fail(db: Db) -> None:
            db.execute("UPDATE webhook_delivery SET state = 'dead', reason = 'it is full'")

        await hub.alps.sends(1, Entry(7, Message("for the hook"), int(START)))
        await store.commit(fail)
        failures = (await hub.done("GET", "/api/webhook-failures"))["failures"]
        assert {each["reason"] for each in failures} == {"it is full"}
        one = {"requestId": failures[0]["requestId"]}
        assert await hub.done("POST", "/api/webhook-failures/replay", one) == {
            "replayed": len(failures)
        }
        assert (await hub.refused("POST", "/api/webhook-failures/replay"))[0] == 409
        await hub.done("DELETE", path)
        assert (await hub.refused("DELETE", path))[0] == 404


@pytest.mark.parametrize("alone", [False, True], ids=["of several", "alone"])
async def test_entered_imei_gives_access_only_to_later_messages(store: Store, alone: bool) -> None:
    """Earlier messages from the modem may belong to another workspace, even if there is only one
    workspace. Only the operator sees, assigns and removes them.
    """
    async with office(store) as hub:
        if alone:
            await store.commit(lambda db: db.execute("DELETE FROM workspace WHERE id <> 1"))
        before = encode([Entry(1, Message("before"), int(START))])
        after = encode([Entry(2, Message("after"), int(START))])
        taking = hub.alps.mobile_originated()
        await taking.take_in_from(IMEI, before)
        assert (await hub.done("PATCH", "/api/devices/1", {"imei": IMEI}))["deadLettersTaken"] == 0
        assert (await hub.done("POST", "/api/devices/1/key", {}))["deadLettersTaken"] == 0
        await hub.done("DELETE", "/api/devices/1/key")
        assert await hub.done("POST", "/api/dead-letters/replay") == {"deadLettersTaken": 0}
        assert (await hub.done("GET", "/api/dead-letters"))["deadLetters"] == []
        assert (await hub.refused("DELETE", "/api/dead-letters/1"))[0] == 404
        await taking.take_in_from(IMEI, after)
        assert await hub.alps.rows("SELECT words FROM item") == [("after",)]
        await store.commit(lambda db: dead_letters.assign_letters(db, 1))
        assert await hub.done("POST", "/api/dead-letters/replay") == {"deadLettersTaken": 1}
        await hub.done("PATCH", "/api/devices/1", {"disabled": True})
        await taking.take_in_from(IMEI, encode([Entry(3, Message("meanwhile"), int(START))]))
        enabled = await hub.done("PATCH", "/api/devices/1", {"disabled": False})
        assert enabled["deadLettersTaken"] == 1


async def test_workspace_lists_replays_and_deletes_its_dead_letters(store: Store) -> None:
    """The workspace pages through them, imports the usable ones, and removes the others."""
    async with office(store) as hub:

        def come(db: Db) -> None:
            keep = partial(
                dead_letters.store_letter, db, bearer=Bearer.SATELLITE, device=1, now=START
            )
            keep(encode([Entry(1, Message("hello"), int(START))]), "its key was missing", imei=IMEI)
            keep(b"noise", "it cannot be read", imei=IMEI)

        await store.commit(come)
        first = await hub.done("GET", "/api/dead-letters?limit=1")
        second = await hub.done("GET", first["next"])
        (noise,), (said,) = first["deadLetters"], second["deadLetters"]
        assert (said["imei"], said["device"], second["next"]) == (IMEI, "kit 1", None)
        assert await hub.done("POST", "/api/dead-letters/replay") == {"deadLettersTaken": 1}
        assert await hub.done("POST", "/api/dead-letters/replay") == {"deadLettersTaken": 0}
        await hub.done("DELETE", f"/api/dead-letters/{noise['id']}")
        assert (await hub.refused("DELETE", f"/api/dead-letters/{noise['id']}"))[0] == 404
        assert (await hub.done("GET", "/api/dead-letters"))["deadLetters"] == []
        assert len(await hub.alps.rows("SELECT id FROM item")) == 1


async def test_device_and_user_with_an_open_sos_cannot_be_deleted(store: Store) -> None:
    async with office(store) as hub:
        await hub.alps.sends(1, Entry(1, Message("help"), int(START), sos=True))
        for path in ("/api/devices/1", "/api/users/1"):
            status, detail = await hub.refused("DELETE", path)
            assert (status, "is not closed" in detail) == (409, True)
        assert (await hub.alps.rows("SELECT disabled FROM device WHERE id = 1")) == [(None,)]


async def test_imei_of_another_workspace_is_contested_and_reported_to_both(store: Store) -> None:
    """Everything stays the same until the operator decides. Then all of it moves."""
    theirs = "300000000000001"
    async with office(store) as hub:

        async def trouble(workspace: int, name: str) -> Any:
            rows = await store.read(lambda db: directory.list_devices(db, workspace, START))
            caller = Caller(1, "", workspace, frozenset(), 1, "User", "", "administrator", True)
            devices, _ = await store.read(
                lambda db: reading.list_devices(db, caller, 999, 99, START)
            )
            (listed,) = [each["contested"] for each in rows if each["name"] == name]
            (claim,) = [each["trouble"] for each in devices if each["name"] == name]
            assert claim == (listed or None)
            return claim

        async def holders() -> list[str]:
            rows = await hub.alps.rows("SELECT name FROM device WHERE imei = ?", theirs)
            return [name for (name,) in rows]

        ((dora, andes),) = await hub.alps.rows(
            "SELECT member, workspace FROM device WHERE name = 'kit dora'"
        )
        new = {"name": "squat", "userId": str(dora), "imei": theirs}
        answer = await hub.done("POST", "/api/devices", new, "dora")
        assert answer["contested"] == CLAIMS
        assert await holders() == ["kit 1"]
        assert (await trouble(andes, "squat"), await trouble(1, "kit 1")) == (
            CLAIMS,
            IS_CLAIMED,
        )
        for who in ("ben", "dora"):
            lines = (await hub.done("GET", "/api/audit", who=who))["audit"]
            assert [each["detail"] for each in lines if "contested" in each["action"]] == [theirs]
        (listed,) = await store.read(imei_claims.list_claims)
        assert (listed["imei"], listed["heldName"], listed["claimedByName"]) == (
            theirs,
            "kit 1",
            "squat",
        )
        device = answer["id"]
        again = await hub.done("PATCH", f"/api/devices/{device}", {"imei": theirs}, "dora")
        assert (again["imei"], again["trouble"]) == (None, CLAIMS)
        with pytest.raises(directory.Refused, match="--take"):
            await store.commit(lambda db: imeis.set_imei(db, device, theirs, now=START))

        def decide(db: Db) -> None:
            imeis.reassign_imei(db, theirs, device, now=START)
            imeis.set_imei(db, device, theirs, now=START)

        await store.commit(decide)
        assert await holders() == ["squat"]
        assert await store.read(imei_claims.list_claims) == []
        assert (await trouble(andes, "squat"), await trouble(1, "kit 1")) == (None, None)


async def test_command_to_a_kit_needs_an_agreed_satellite_price(store: Store) -> None:
    async with office(store) as hub:
        path = "/api/devices/3/commands"
        refusals: list[tuple[dict[str, object], int, str]] = [
            ({"command": "explode"}, 409, "use status, log"),
            ({"command": "set sos-repeat=900"}, 409, "the key that signs set"),
            ({"command": "status", "by": "radio"}, 422, "ip, satellite"),
            ({"command": "status"}, 409, "cost 3 credits over satellite"),
            ({"command": "status", "by": "satellite", "credits": 2}, 409, "cost 3 credits"),
        ]
        for body, status, why in refusals:
            assert (refusal := await hub.refused("POST", path, body))[0] == status
            assert why in refusal[1]
        assert (await hub.done("GET", path))["commands"] == []
        row = await hub.done("POST", path, {"command": "status", "credits": 3})
        assert (row["command"], row["state"], row["credits"]) == ("status", "waiting", 3)
        second = await hub.done("POST", path, {"command": "log 60", "by": "ip"})
        assert second["number"] == row["number"] + 1
        listed = (await hub.done("GET", f"{path}?limit=1"))["commands"]
        assert [each["command"] for each in listed] == ["log 60"]
        lines = [line for line in await hub.acted() if line[1] == "command"]
        assert lines[0] == ("Ben", "command", f"3: {row['number']} status")


async def test_usage_report_compares_hub_and_operator_counts(store: Store) -> None:
    async with office(store) as hub:
        day = usage.format_day(START)
        await store.commit(lambda db: db.execute("UPDATE device SET imei = ? WHERE id = 1", IMEI))
        await usage.count_session(store, IMEI, "7", 51, clock=hub.alps.clock)
        await usage.count_session(store, IMEI, "9", 9, clock=lambda: START - 40 * 86_400)
        counted = [CountedDay(IMEI, day, 2, 3, 51, ("7", "8"))]
        await store.commit(lambda db: usage.store_counts(db, "directip", counted))
        report = await hub.done("GET", "/api/devices/1/usage")
        assert report["until"] == day
        (row,) = report["usage"]
        assert (row["day"], row["hubCount"], row["operator"]) == (day, 2, 3)
        assert row["difference"] == "1 credit more there: sessions that did not reach this hub: 8"
        assert "money" not in row
        assert (report["total"]["hubCount"], report["total"]["money"]) == (2, None)
        earlier = await hub.done("GET", "/api/devices/1/usage?since=2020-01-01")
        assert [each["hubCount"] for each in earlier["usage"]] == [1, 2]
        until = await hub.done(
            "GET", f"/api/devices/1/usage?since=2020-01-01&until={day[:4]}-01-01"
        )
        assert until["total"]["operator"] == 0
        for query in ("since=1.9.2026", "until=", "since=2026-13-01", "day=2026-09-01"):
            assert (await hub.refused("GET", f"/api/devices/1/usage?{query}"))[0] == 400
        assert (await hub.refused("GET", "/api/devices/99/usage"))[0] == 404
        assert (await hub.done("GET", "/api/devices/2/usage"))["usage"] == []
