"""An SOS at the hub: who is told, who answers it, and what its kit learns of that."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import router
from fieldagent.http.target import query_pairs
from fieldagent.hub import credentials, directory, sos, sos_desk, webhook_directory, webhooks
from fieldagent.hub.authentication import Authentication
from fieldagent.hub.contract import Bearer
from fieldagent.hub.sos_api import SosApi
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import CALLED_OFF, Message
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult
from fieldagent.wire.envelope import Entry, Introduction, Receipt, decode, derive_key, digest_of
from tests.hub.field import MASTER, START, Field, collect, field_of

HELP = Entry(7, Message("leg broken"), int(START), sos=True)


@dataclass
class Desk:
    """Ben and Cleo are dispatchers; Ada has a kit."""

    alps: Field
    key: str
    tokens: dict[int, str]
    api: SosApi

    async def call(self, method: str, path: str, body: Any = None, who: int = 2) -> Response:
        target, _, query = path.partition("?")
        content = b"" if body is None else json.dumps(body).encode()
        headers = {
            "x-api-key": self.key,
            "authorization": f"Bearer {self.tokens[who]}",
            "content-length": str(len(content)),
        }
        request = Request(method, target, query_pairs(query), headers, content)
        try:
            admission = await router(self.api.routes())(request)
            return await admission.handler(request)
        except Problem as problem:
            return problem.to_response()

    async def told(self, *call: Any, **how: Any) -> Any:
        answer = await self.call(*call, **how)
        assert answer.status == 200, answer.body
        return json.loads(answer.body)

    async def events(self, id_: int = 1) -> list[str]:
        return [each["event"] for each in (await self.told("GET", f"/api/sos/{id_}"))["timeline"]]

    async def posted(self, confirmed_by: str | None) -> str:
        """As a webhook that takes it."""
        post = partial(
            sos_desk.note_posted, item=1, webhook="desk", confirmed_by=confirmed_by, now=START
        )
        return await self.alps.store.commit(post)


@asynccontextmanager
async def desk(store: Store, dispatchers: tuple[int, ...] = (2, 3)) -> AsyncIterator[Desk]:
    async with field_of(store) as alps:

        def settle_in(db: Db) -> tuple[str, dict[int, str]]:
            now = alps.now
            for each in dispatchers:
                directory.set_role(db, 1, each, "dispatcher", now=now)
            _, key = credentials.add_key(db, 1, "desk", scopes=["read", "acknowledge"], now=now)
            tokens = {each: credentials.add_token(db, each, "t", now=now)[1] for each in (1, 2, 3)}
            db.execute("UPDATE device SET journal = 5")
            return key, tokens

        key, tokens = await store.commit(settle_in)
        authentication = Authentication(store, clock=alps.clock)
        yield Desk(alps, key, tokens, SosApi(store, authentication, clock=alps.clock))


async def receipts(alps: Field, device: int) -> list[tuple[str, bool, bytes]]:
    """By whom, whether in person, of what: as the kit gets them over IP."""
    found = []
    names: dict[int, str] = {0: "the hub"}
    for envelope in await collect(alps.mailbox(device)):
        for entry in envelope.entries:
            if isinstance(entry.content, Introduction):
                names[entry.sequence] = entry.content.identity.name
            elif isinstance(entry.content, Receipt):
                found.append((names[entry.content.by], entry.sos, entry.content.digest))
    return found


async def test_an_acknowledgement_goes_to_the_kit_in_a_persons_name(store: Store) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        (raised,) = (await hub.told("GET", "/api/sos?state=open"))["sos"]
        assert (raised["device"]["name"], raised["acknowledged"]) == ("kit 1", None)
        assert raised["item"]["event"]["content"] == "leg broken"
        told = await hub.told("POST", "/api/sos/1/acknowledge", {"note": "heli is up"})
        assert (told["state"], told["acknowledged"]["by"]["name"]) == ("acknowledged", "Ben")
        assert await receipts(hub.alps, 1) == [("Ben", True, digest_of(HELP))]
        assert [each["detail"] for each in told["timeline"]] == ["", "heli is up"]
        # Again is no news; another person is told who was first.
        await hub.told("POST", "/api/sos/1/acknowledge")
        refused = await hub.call("POST", "/api/sos/1/acknowledge", who=3)
        assert refused.status == 409 and b"Ben has acknowledged SOS 1" in refused.body
        await hub.told("POST", "/api/sos/1/note", {"text": "seen from the air"}, who=3)
        told = await hub.told("POST", "/api/sos/1/close", {"reason": "in hospital"}, who=3)
        assert await receipts(hub.alps, 1) == []
        assert await hub.events() == ["raised", "acknowledged", "note", "closed"]
        assert (await hub.told("GET", "/api/sos?state=open"))["sos"] == []
        assert (await hub.call("POST", "/api/sos/1/close", {"reason": "again"})).status == 409


async def test_who_calls_it_off_is_seen_at_the_desk_and_a_person_closes_it(store: Store) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        told = await hub.told("GET", "/api/sos/1")
        assert told["calledOff"] is None
        await hub.alps.sends(2, Entry(3, Message(CALLED_OFF), int(START)))
        await hub.alps.sends(1, Entry(98, Message("coming down"), int(START)))
        assert await hub.events() == ["raised"], "neither another kit nor another word"
        await hub.alps.sends(1, Entry(99, Message(CALLED_OFF), int(START)))
        told = await hub.told("GET", "/api/sos/1")
        assert (told["state"], told["calledOff"]) == ("open", hub.alps.now)
        assert told["timeline"][-1]["by"]["name"] == "Ada"
        assert await hub.events() == ["raised", "called off"]
        await hub.told("POST", "/api/sos/1/close", {"reason": "spoke to her"})
        await hub.alps.sends(1, Entry(100, Message(CALLED_OFF), int(START)))
        assert await hub.events() == ["raised", "called off", "closed"]


async def test_it_goes_over_satellite_at_once(store: Store) -> None:
    async with desk(store) as hub:
        key, back = derive_key(MASTER, "MO"), derive_key(MASTER, "MT")
        await hub.alps.sends(3, HELP, way=Bearer.SATELLITE, key=key)
        await hub.alps.satellite()
        before = len(hub.alps.sky.taken)
        await hub.told("POST", "/api/sos/1/acknowledge")
        await hub.alps.satellite()
        ((_, body),) = hub.alps.sky.taken[before:]
        entries = decode(body, keys=[back]).entries
        assert [entry.sos for entry in entries if isinstance(entry.content, Receipt)] == [True]


async def test_one_that_is_closed_unanswered_is_answered_by_that(store: Store) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        told = await hub.told("POST", "/api/sos/1/close", {"reason": "a drill"})
        assert (told["state"], told["acknowledged"]["by"]["name"]) == ("closed", "Ben")
        assert await receipts(hub.alps, 1) == [("Ben", True, digest_of(HELP))]


@pytest.mark.parametrize(
    ("setting", "dispatchers", "confirmed"),
    [
        (None, (), True),
        (None, (2,), False),
        ("person", (2,), False),
        ("webhook", (2,), True),
        ("webhook", (), True),
    ],
)
async def test_a_webhook_counts_as_an_answer_where_nobody_else_gives_one(
    store: Store, setting: str | None, dispatchers: tuple[int, ...], confirmed: bool
) -> None:
    async with desk(store, dispatchers) as hub:
        await hub.alps.sends(1, HELP)
        assert await hub.posted(setting) == ""
        expected = [("the hub", False, digest_of(HELP))] if confirmed else []
        assert await receipts(hub.alps, 1) == expected
        assert await hub.events() == ["raised", "webhook"]


async def test_it_is_told_where_no_person_can_answer(store: Store) -> None:
    async with desk(store, ()) as hub:
        await hub.alps.sends(1, HELP)
        assert "`fieldagent hub user role`" in await hub.posted("person")
        assert await receipts(hub.alps, 1) == []


async def test_a_colleagues_kit_is_no_person(store: Store) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        await collect(hub.alps.mailbox(2))
        ((name, person, _),) = await receipts(hub.alps, 1)
        assert (name, person) == ("Ben", False)
        assert await hub.events() == ["raised", "agent"]
        # The same person may then acknowledge it.
        await hub.told("POST", "/api/sos/1/acknowledge")
        ((name, person, _),) = await receipts(hub.alps, 1)
        assert (name, person) == ("Ben", True)


async def test_who_may_not_answer_is_told_why(store: Store) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        refused = await hub.call("POST", "/api/sos/1/acknowledge", who=1)
        assert refused.status == 403 and b"hub user role 1 dispatcher" in refused.body
        for path, body, status in (
            ("/api/sos/2/acknowledge", None, 404),
            ("/api/sos/one/acknowledge", None, 404),
            ("/api/sos/1/close", {}, 422),
            ("/api/sos/1/close", {"reason": ""}, 422),
            ("/api/sos/1/close", {"why": "x"}, 422),
            ("/api/sos/1/note", {"text": 5}, 422),
            ("/api/sos/1/note", {"text": "x" * 2001}, 422),
            ("/api/sos/1/acknowledge", [], 422),
        ):
            assert (await hub.call("POST", path, body)).status == status, path
        assert await hub.events() == ["raised"]
        with pytest.raises(directory.Refused, match="is a person"):
            await store.commit(_make_a_program_dispatcher)


def _make_a_program_dispatcher(db: Db) -> None:
    db.execute("UPDATE member SET type = 'Integration' WHERE id = 1")
    directory.set_role(db, 1, 1, "dispatcher", now=START)


async def test_another_workspace_has_its_own(store: Store) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        found = await store.read(lambda db: sos.named(db, 2, 1))
        assert found is None


async def test_the_next_contact_is_told_where_nobody_answers(store: Store) -> None:
    async with desk(store) as hub:

        def settle_in(db: Db) -> None:
            for after in (0, 10, 20):
                contact = webhooks.Webhook(0, f"https://desk.example/{after}", after=after)
                webhook_directory.add(db, 1, contact, now=START)

        async def told() -> list[str]:
            """And they take it."""
            posts = await store.commit(lambda db: webhooks.claim(db, hub.alps.now, 9))
            for post in posts:
                taken = HandoverResult(HandoverOutcome.HANDED)
                settle = partial(webhooks.settle, posting=post, result=taken, now=hub.alps.now)
                await store.commit(settle)
            return [post.webhook.url.rpartition("/")[2] for post in posts]

        await store.commit(settle_in)
        await hub.alps.sends(1, Entry(1, Message("all well"), int(START)))
        assert await told() == ["0"]
        await hub.alps.sends(1, HELP)
        assert await told() == ["0"]
        hub.alps.now += 599
        assert await told() == []
        await store.commit(lambda db: webhook_directory.enable(db, 1, 2, now=START))
        assert await told() == []
        hub.alps.now += 1
        assert await told() == ["10"]
        await hub.told("POST", "/api/sos/1/acknowledge")
        hub.alps.now += 3600
        assert await told() == []
        assert await hub.events() == ["raised", "webhook", "webhook", "acknowledged"]


async def test_an_answer_that_was_lost_goes_again_ever_more_rarely(store: Store) -> None:
    async with desk(store) as hub:
        key = derive_key(MASTER, "MO")

        async def repeat() -> int:
            """How many messages the answer to it costs."""
            before = len(hub.alps.sky.taken)
            await hub.alps.sends(3, HELP, way=Bearer.SATELLITE, key=key)
            await hub.alps.satellite()
            return len(hub.alps.sky.taken) - before

        await repeat()
        await hub.told("POST", "/api/sos/1/acknowledge")
        assert await repeat() == 1
        hub.alps.now += 60
        assert await repeat() == 0
        hub.alps.now += 60
        assert await repeat() == 1
        answers = []
        for _ in range(1_000):
            hub.alps.now += 300
            answers.append(await repeat())
        assert 5 <= sum(answers) <= 15 and not any(answers[600:700])
        assert await hub.events() == ["raised", "acknowledged"]
