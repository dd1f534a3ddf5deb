"""An SOS at the hub: the informed people, the answers, and the news to its kit."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.query import query_pairs
from fieldagent.http.routes import Route, make_router
from fieldagent.hub.access import credentials, directory
from fieldagent.hub.access.authentication import Authentication
from fieldagent.hub.api.sos_api import SosApi
from fieldagent.hub.contract import Bearer
from fieldagent.hub.records import sos, sos_without_text
from fieldagent.hub.service import health
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.webhook import webhook_directory
from fieldagent.hub.webhook.webhook_directory import Webhook
from fieldagent.package.package import (
    IncidentState,
    IncidentUpdate,
    Location,
    Message,
    format_short_sos_number,
)
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult
from fieldagent.wire.envelope import Entry, Receipt, compute_item_digest, decode, derive_key
from fieldagent.wire.proof import derive_proof_key, is_update_proved, prove_update
from fieldagent.wire.sbd import MT_BYTES
from tests.hub.claiming import claim, settle
from tests.hub.field import MASTER, START, Field, collect, field_of

HELP = Entry(7, Message("leg broken"), int(START), sos=True)


@dataclass
class Desk:
    """Ben and Cleo are dispatchers with the console open. Ada has a kit."""

    alps: Field
    key: str
    tokens: dict[int, str]
    routes: Sequence[Route]

    async def call(
        self, method: str, path: str, body: Any = None, who: int = 2, key: str | None = None
    ) -> Response:
        target, _, query = path.partition("?")
        content = b"" if body is None else json.dumps(body).encode()
        headers = {
            "x-api-key": self.key,
            "authorization": f"Bearer {self.tokens[who]}",
            "content-length": str(len(content)),
            **({} if key is None else {"idempotency-key": key}),
        }
        request = Request(method, target, query_pairs(query), headers, content)
        try:
            admission = await make_router(self.routes)(request)
            return await admission.handler(request)
        except Problem as problem:
            return problem.make_response()

    async def told(self, *call: Any, **how: Any) -> Any:
        answer = await self.call(*call, **how)
        assert answer.status == 200, answer.body
        return json.loads(answer.body)

    async def events(self, id_: int = 1) -> list[str]:
        return [each["event"] for each in (await self.told("GET", f"/api/sos/{id_}"))["timeline"]]


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
            db.execute("INSERT INTO process (name, until) VALUES ('here', 9e9)")
            db.execute(
                "INSERT INTO console_stream (process, stream, workspace, member)"
                " SELECT 'here', id, 1, id FROM member"
            )
            return key, tokens

        key, tokens = await store.commit(settle_in)
        authentication = Authentication(store, clock=alps.clock)
        routes = [
            route
            for kind in (sos.SOS, sos.ALARM)
            for route in SosApi(store, authentication, clock=alps.clock, kind=kind).make_routes()
        ]
        yield Desk(alps, key, tokens, routes)


async def fetch_news(alps: Field, device: int, about: int = 0) -> list[tuple[str, str, str]]:
    """Return the news for the kit over IP: kind, person and text. Each has a valid proof of the kit
    that it is `about`.
    """
    ((digest,),) = await alps.rows(f"SELECT link_token FROM device WHERE id = {about or device}")
    token_key = derive_proof_key(bytes.fromhex(digest))
    words = []
    for envelope in await collect(alps.mailbox(device)):
        for entry in envelope.entries:
            if isinstance(entry.content, IncidentUpdate):
                keys = [derive_proof_key(MASTER), token_key]
                assert entry.content.incident == 7 and is_update_proved(entry.content, keys)
                assert entry.content.station == about
                words.append((entry.content.state.value, entry.content.by, entry.content.text))
    return words


async def test_acknowledgement_of_an_sos_reaches_the_kit_with_name_and_text(store: Store) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        (raised,) = (await hub.told("GET", "/api/sos?state=open"))["sos"]
        assert (raised["device"]["name"], raised["seen"]) == ("kit 1", None)
        assert raised["item"]["event"]["content"] == "leg broken"
        incident = await hub.told("POST", "/api/sos/1/acknowledge", {"note": "heli is up"})
        assert (incident["state"], incident["seen"]["by"]["name"]) == ("seen", "Ben")
        assert await fetch_news(hub.alps, 1) == [("seen", "Ben", "heli is up")]
        assert [each["detail"] for each in incident["timeline"]] == ["", "heli is up"]
        # A repetition is not news, and another person gets the name of the first.
        await hub.told("POST", "/api/sos/1/acknowledge")
        refused = await hub.call("POST", "/api/sos/1/acknowledge", who=3)
        assert refused.status == 409 and b"Ben already has SOS 007" in refused.body
        await hub.told("POST", "/api/sos/1/note", {"text": "seen from the air"}, who=3)
        incident = await hub.told("POST", "/api/sos/1/close", {"reason": "in hospital"}, who=3)
        assert await fetch_news(hub.alps, 1) == [("closed", "Cleo", "in hospital")]
        assert await hub.events() == ["raised", "seen", "note", "closed"]
        assert (await hub.told("GET", "/api/sos?state=open"))["sos"] == []
        assert (await hub.call("POST", "/api/sos/1/close", {"reason": "again"})).status == 409


@pytest.mark.parametrize("kind", ["overdue", "fence", "watch", "operator"])
async def test_alarm_is_kept_apart_from_sos_in_lists_texts_and_metrics(
    store: Store, kind: str
) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)

        def alarm(db: Db) -> int:
            return sos.raise_incident(db, 1, 1, None, hub.alps.now, kind=kind)

        id_ = await store.commit(alarm)
        for path, ids in (("sos", [1]), ("alarms", [id_])):
            for what in ("", "/export"):
                answer = await hub.told("GET", f"/api/{path}{what}")
                assert [each["id"] for each in answer[path]] == ids
            table = await hub.call("GET", f"/api/{path}/export?format=csv")
            rows = list(csv.DictReader(io.StringIO(table.body.decode("utf-8-sig"))))
            assert [row["kind"] for row in rows] == [kind if path == "alarms" else "sos"]
            assert f'filename="{path}.csv"' in dict(table.headers)["Content-Disposition"]
        # Neither path shows or changes the other's.
        for path in (f"/api/sos/{id_}", "/api/alarms/1"):
            assert (await hub.call("GET", path)).status == 404
            assert (await hub.call("POST", f"{path}/acknowledge")).status == 404
            assert (await hub.call("POST", f"{path}/close", {"reason": "x"})).status == 404
        figures = await store.read(lambda db: health.count_few(db, hub.alps.now))
        assert (figures["sos_open"], figures["alarms_open"]) == (1, 1)
        seen = await hub.call("GET", f"/api/alarms/{id_}")
        assert seen.headers == (("fieldagent-alarm", kind),)
        assert json.loads(seen.body)["kind"] == kind and b'"sos":true' not in seen.body
        assert (await hub.call("GET", "/api/sos/1")).headers == (("fieldagent-sos", "1"),)
        answered = await hub.call("POST", f"/api/alarms/{id_}/acknowledge")
        assert answered.headers == (("fieldagent-alarm", kind),)
        refused = await hub.call("POST", f"/api/alarms/{id_}/acknowledge", who=3)
        assert json.loads(refused.body)["alarm"]["kind"] == kind
        assert f"Ben already has alarm {id_}" in refused.body.decode()
        await hub.told("POST", f"/api/alarms/{id_}/close", {"reason": "a test"})
        refused = await hub.call("POST", f"/api/alarms/{id_}/hand-over", {"to": "3"})
        assert f"only the user who has alarm {id_}" in refused.body.decode()
        refused = await hub.call("POST", f"/api/alarms/{id_}/take-over")
        assert f"alarm {id_} is closed" in refused.body.decode()
        assert (await hub.call("GET", "/api/alarms?kind=fence")).status == 400
        acts = await hub.alps.rows("SELECT action FROM audit ORDER BY id")
        assert [act for (act,) in acts][-2:] == ["alarm acknowledge", "alarm close"]


async def test_takeover_of_an_sos_is_recorded_and_sent_to_the_kit(store: Store) -> None:
    """A dispatcher can take over an SOS from another dispatcher or from a contact without an
    account. For a free incident the takeover is an acknowledgement. For a closed incident it has no
    effect.
    """
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        incident = await hub.told("POST", "/api/sos/1/take-over", {"note": "mine"})
        assert (incident["state"], incident["seen"]["by"]["name"]) == ("seen", "Ben")
        assert await fetch_news(hub.alps, 1) == [("seen", "Ben", "mine")]
        # The owner cannot take over their own SOS.
        await hub.told("POST", "/api/sos/1/take-over")
        assert await fetch_news(hub.alps, 1) == []
        hub.alps.now += 3600
        incident = await hub.told("POST", "/api/sos/1/take-over", {"note": "my watch now"}, who=3)
        assert (incident["state"], incident["seen"]["by"]["name"]) == ("seen", "Cleo")
        assert incident["seen"]["at"] == hub.alps.now
        assert [each["event"] for each in incident["timeline"]] == ["raised", "seen", "taken over"]
        assert incident["timeline"][-1]["detail"] == "from Ben: my watch now"
        assert await fetch_news(hub.alps, 1) == [("seen", "Cleo", "my watch now")]
        await hub.told("POST", "/api/sos/1/close", {"reason": "in hospital"}, who=3)
        refused = await hub.call("POST", "/api/sos/1/take-over")
        assert refused.status == 409 and b"SOS 007 is closed" in refused.body
        assert (await hub.call("POST", "/api/sos/1/take-over", who=1)).status == 403


async def test_handover_of_an_sos_is_complete_only_after_takeover(store: Store) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        asked = {"to": "3", "note": "heli at 14:00"}
        refused = await hub.call("POST", "/api/sos/1/hand-over", asked)
        assert refused.status == 409 and b"only the user who has SOS 007" in refused.body
        await hub.told("POST", "/api/sos/1/acknowledge")
        assert await fetch_news(hub.alps, 1) == [("seen", "Ben", "")]
        for to, reason in (
            ("1", b"user 1 is not a dispatcher: run `fieldagent hub user role 1 dispatcher`"),
            ("2", b"user 2 is not another dispatcher"),
            ("77", b"user 77 is not a dispatcher"),
        ):
            refused = await hub.call("POST", "/api/sos/1/hand-over", {"to": to})
            assert refused.status == 409 and reason in refused.body
        incident = await hub.told("POST", "/api/sos/1/hand-over", asked)
        # The SOS stays with Ben until Cleo has taken it, and the kit shows Ben's name.
        assert (incident["state"], incident["seen"]["by"]["name"]) == ("seen", "Ben")
        last = incident["timeline"][-1]
        assert (last["event"], last["by"]["name"]) == ("handed over", "Ben")
        assert last["detail"] == "to Cleo, once they take it: heli at 14:00"
        assert incident["askedToTakeOver"] == {"id": "3", "name": "Cleo"}
        assert await fetch_news(hub.alps, 1) == []
        incident = await hub.told("POST", "/api/sos/1/take-over", who=3)
        assert (incident["seen"]["by"]["name"], incident["askedToTakeOver"]) == ("Cleo", None)


def make_time(seconds: int) -> datetime:
    return datetime.fromtimestamp(START + seconds, UTC)


def make_later_entry(number: int, content: Any, seconds: int = 60) -> Entry:
    """Return an entry of the incident that HELP raised."""
    return Entry(number, content, int(START) + seconds, sos=True, items_back=number - 7)


async def test_items_of_the_kit_join_its_open_incident(store: Store) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        await hub.alps.sends(
            1,
            make_later_entry(8, Location(46.5, 7.25, make_time(60))),
            make_later_entry(9, Message("cold")),
        )
        await hub.alps.sends(2, Entry(7, Message("another kit's"), int(START), sos=True))
        (other, own) = (await hub.told("GET", "/api/sos"))["sos"]
        said = [each["event"].get("content", "a position") for each in own["items"]]
        assert said == ["leg broken", "a position", "cold"]
        assert (own["number"], other["device"]["name"]) == (7, "kit 2")
        assert await hub.events() == ["raised", "item", "item"]
        await hub.told("POST", "/api/sos/1/acknowledge")
        await hub.alps.sends(1, make_later_entry(10, Message("worse")))
        assert (await hub.told("GET", "/api/sos/1"))["state"] == "seen"


async def test_later_message_reopens_a_closed_incident_but_earlier_ones_do_not(
    store: Store,
) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        hub.alps.now += 600
        await hub.told("POST", "/api/sos/1/close", {"reason": "a drill"})
        await hub.alps.sends(1, make_later_entry(8, Message("said before, late")))
        assert (await hub.told("GET", "/api/sos/1"))["state"] == "closed"
        await hub.alps.sends(1, make_later_entry(9, Message("no drill"), 700))
        incident = await hub.told("GET", "/api/sos/1")
        assert (incident["state"], incident["seen"], incident["closed"]) == ("open", None, None)
        assert await hub.events() == ["raised", "closed", "item", "raised"]


async def test_called_off_sos_is_shown_and_stays_open(store: Store) -> None:
    off = IncidentUpdate(7, IncidentState.CALLED_OFF)
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        assert (await hub.told("GET", "/api/sos/1"))["calledOff"] is None
        await hub.alps.sends(2, Entry(3, off, int(START)))
        await hub.alps.sends(1, Entry(98, Message("SOS called off"), int(START)))
        await hub.alps.sends(1, Entry(97, replace(off, incident=8), int(START)))
        assert await hub.events() == ["raised"], "neither another kit, nor words, nor another one"
        await hub.alps.sends(1, Entry(99, off, int(START)))
        incident = await hub.told("GET", "/api/sos/1")
        assert (incident["state"], incident["calledOff"]) == ("open", hub.alps.now)
        assert incident["timeline"][-1]["by"]["name"] == "Ada"
        assert await hub.events() == ["raised", "called off"]


@pytest.mark.parametrize("proved", [True, False])
async def test_relayed_call_off_counts_only_with_valid_proof(store: Store, proved: bool) -> None:
    async with desk(store) as hub:
        await store.commit(lambda db: db.execute("UPDATE device SET relay = 0"))
        await hub.alps.sends(3, HELP, bearer=Bearer.SATELLITE, key=derive_key(MASTER, "MO"))
        off = IncidentUpdate(7, IncidentState.CALLED_OFF)
        word = (
            prove_update(off, derive_proof_key(MASTER)) if proved else prove_update(off, bytes(32))
        )
        await hub.alps.sends(2, Entry(9, word, int(START)), origin=3)
        incident = await hub.told("GET", "/api/sos/1")
        assert (incident["calledOff"] is not None) == proved
        assert [each["event"] for each in incident["timeline"]] == ["raised", "called off"]
        assert incident["timeline"][-1]["detail"] == ("" if proved else "unauthenticated")


async def test_incident_lost_by_the_hub_rings_when_its_kit_reports(store: Store) -> None:
    """The database was restored from an earlier copy."""
    async with desk(store) as hub:
        named = Entry(0, IncidentUpdate(7, IncidentState.OPEN), int(START))
        await hub.alps.sends(1, named)
        await hub.alps.sends(1, named)
        incident = await hub.told("GET", "/api/sos/1")
        assert (incident["state"], incident["number"], incident["item"]) == ("open", 7, None)
        await hub.alps.sends(1, make_later_entry(9, Message("still here")))
        incident = await hub.told("GET", "/api/sos/1")
        assert [each["event"]["content"] for each in incident["items"]] == ["still here"]
        await hub.told("POST", "/api/sos/1/acknowledge")
        assert await fetch_news(hub.alps, 1) == [("seen", "Ben", "")]
        # The kit has not got the news, so the hub sends it again.
        hub.alps.now += 600
        await hub.alps.sends(1, named)
        assert await fetch_news(hub.alps, 1) == [("seen", "Ben", "")]


@pytest.mark.parametrize("answered", [False, True])
async def test_incident_reported_before_its_text_is_escalated(store: Store, answered: bool) -> None:
    """A link opens when a person presses the button, or the database is an old copy."""
    async with desk(store) as hub:
        later_one = Webhook(0, "https://desk.example/later", after=10)
        await store.commit(lambda db: webhook_directory.add_webhook(db, 1, later_one, now=START))
        await hub.alps.sends(1, Entry(0, IncidentUpdate(7, IncidentState.OPEN), int(START)))
        if answered:
            await hub.told("POST", "/api/sos/1/acknowledge")
        await hub.alps.sends(1, HELP)
        await hub.alps.sends(1, make_later_entry(9, Message("still here")))
        incident = await hub.told("GET", "/api/sos/1")
        assert incident["item"]["event"]["content"] == "leg broken"
        hub.alps.now += 601
        posts = await store.commit(lambda db: claim(db, hub.alps.now))
        told_of = [json.loads(post.delivery.body)["payloads"][0]["events"][0] for post in posts]
        assert [each["content"] for each in told_of] == ([] if answered else ["leg broken"])
        assert [post.raises for post in posts] == ([] if answered else [True])


async def test_incident_without_a_text_is_posted_to_webhooks_by_the_hub(store: Store) -> None:
    async with desk(store) as hub:

        async def posted(after: int) -> list[str]:
            """The posts are not settled, so they come again."""
            url = f"https://desk.example/{after}"
            claimed = await store.commit(lambda db: claim(db, hub.alps.now))
            posts = [each for each in claimed if each.webhook.url == url]
            events = [json.loads(post.delivery.body)["payloads"][0]["events"][0] for post in posts]
            assert all(each["incident"]["number"] == 7 for each in events)
            return [each["content"] for each in events]

        for after in (0, 10):
            one = Webhook(0, f"https://desk.example/{after}", after=after)
            await store.commit(
                partial(webhook_directory.add_webhook, workspace=1, webhook=one, now=START)
            )
        await hub.alps.sends(1, Entry(0, IncidentUpdate(7, IncidentState.OPEN), int(START)))
        hub.alps.now += sos_without_text.ITEM_WAIT_S - 1
        assert await store.commit(lambda db: sos_without_text.add_own_items(db, hub.alps.now)) == []
        hub.alps.now += 1
        assert await store.read(sos_without_text.compute_next_due) == hub.alps.now
        await store.commit(lambda db: sos_without_text.add_own_items(db, hub.alps.now))
        assert (
            await store.commit(lambda db: sos_without_text.add_own_items(db, hub.alps.now)) == []
        ), "once"
        said = "kit 1 reports an open SOS, but its text has not arrived: ask it"
        assert await posted(0) == [said]
        await hub.alps.sends(1, make_later_entry(9, Message("still here")))
        assert await posted(0) == ["still here"]
        hub.alps.now += 601
        assert await posted(10) == [said]
        assert (await hub.told("GET", "/api/sos/1"))["state"] == "open"


async def test_report_of_another_kit_is_shown_in_the_timeline(store: Store) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        await hub.alps.sends(
            2, Entry(5, IncidentUpdate(7, IncidentState.SEEN, 1, "Zoe", "on my way"), int(START))
        )
        (_, event) = (await hub.told("GET", "/api/sos/1"))["timeline"]
        assert (event["event"], event["detail"]) == ("seen at a kit", "Zoe on my way")
        assert (await hub.told("GET", "/api/sos/1"))["state"] == "open"


async def test_news_about_an_sos_reaches_its_carrier_and_all_ringing_kits(store: Store) -> None:
    """The kit in distress may have no other route, and the ringing kits stop."""
    async with desk(store) as hub:
        await hub.alps.sends(2, HELP, origin=1)
        await collect(hub.alps.mailbox(3))
        await hub.told("POST", "/api/sos/1/acknowledge", {"note": "heli is up"}, who=3)
        seen = ("seen", "Cleo", "heli is up")
        for kit, about in ((1, 0), (2, 1), (3, 1)):
            assert await fetch_news(hub.alps, kit, about) == [seen]
        # The SOS comes again over Ben's kit, because the news between the two kits was lost.
        hub.alps.now += 600
        await hub.alps.sends(2, HELP, origin=1)
        assert await fetch_news(hub.alps, 2, 1) == [seen]
        assert await fetch_news(hub.alps, 3, 1) == [], "it rings no more"


async def test_later_carrier_of_an_sos_gets_the_earlier_news(store: Store) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        await hub.told("POST", "/api/sos/1/acknowledge", {"note": "heli is up"})
        assert await fetch_news(hub.alps, 2, 1) == []
        for _ in range(2):
            await hub.alps.sends(2, HELP, origin=1)
        assert await fetch_news(hub.alps, 2, 1) == [("seen", "Ben", "heli is up")]
        await hub.told("POST", "/api/sos/1/close", {"reason": "in hospital"})
        assert await fetch_news(hub.alps, 2, 1) == [("closed", "Ben", "in hospital")]


async def test_news_over_satellite_goes_only_to_the_kit_and_its_carrier(store: Store) -> None:
    async with desk(store, dispatchers=(1, 2)) as hub:
        key = derive_key(MASTER, "MO")
        await hub.alps.sends(3, HELP, bearer=Bearer.SATELLITE, key=key, origin=1)
        await hub.alps.satellite()
        before = len(hub.alps.sky.taken)
        await hub.told("POST", "/api/sos/1/acknowledge")
        await hub.alps.satellite()
        kits = [imei[-1] for imei, _ in hub.alps.sky.taken[before:]]
        assert kits == ["1", "3"], "its own kit, and the one that brought it"


async def test_news_about_an_sos_is_sent_over_satellite_at_once(store: Store) -> None:
    async with desk(store) as hub:
        key, back = derive_key(MASTER, "MO"), derive_key(MASTER, "MT")
        await hub.alps.sends(3, HELP, bearer=Bearer.SATELLITE, key=key)
        await hub.alps.satellite()
        before = len(hub.alps.sky.taken)
        await hub.told("POST", "/api/sos/1/acknowledge")
        await hub.alps.satellite()
        ((_, body),) = hub.alps.sky.taken[before:]
        entries = decode(body, keys=[back]).entries
        words = [each.content for each in entries if isinstance(each.content, IncidentUpdate)]
        assert [(word.state, word.by) for word in words] == [(IncidentState.SEEN, "Ben")]


@pytest.mark.parametrize("letter", ["x", "я", "字", "🚁"])
async def test_news_in_any_script_is_shortened_to_fit_a_satellite_message(
    store: Store, letter: str
) -> None:
    """In an earlier version, 120 Ukrainian letters did not fit. They were never sent, and they
    blocked later messages.
    """
    async with desk(store) as hub:
        await store.commit(
            lambda db: db.execute("UPDATE member SET name = ? WHERE id = 2", letter * 40)
        )
        await hub.alps.sends(3, HELP, bearer=Bearer.SATELLITE, key=derive_key(MASTER, "MO"))
        await hub.told("POST", "/api/sos/1/acknowledge", {"note": letter * 500})
        await hub.told("POST", "/api/sos/1/close", {"reason": "home"})
        for _ in range(3):
            await hub.alps.satellite()
        bodies = [body for imei, body in hub.alps.sky.taken if imei.endswith("3")]
        assert max(map(len, bodies)) <= MT_BYTES
        entries = [e for body in bodies for e in decode(body).entries]
        words = [e.content for e in entries if isinstance(e.content, IncidentUpdate)]
        assert [word.state for word in words] == [IncidentState.SEEN, IncidentState.CLOSED]
        assert set(words[0].by) <= {letter, "…"} and set(words[0].text) == {letter, "…"}


async def test_sos_over_satellite_is_confirmed_at_once(store: Store) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(3, HELP, bearer=Bearer.SATELLITE, key=derive_key(MASTER, "MO"))
        await hub.alps.satellite()
        (body,) = [body for imei, body in hub.alps.sky.taken if imei.endswith("3")]
        said = [
            (each.sequence, each.content)
            for each in decode(body, keys=[derive_key(MASTER, "MT")]).entries
        ]
        assert (7, Receipt(0, compute_item_digest(HELP))) in said


async def test_sos_over_ip_is_confirmed_by_the_link_only(store: Store) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        assert await collect(hub.alps.mailbox(1)) == []


async def test_receipt_of_another_kit_does_not_acknowledge_the_sos(store: Store) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        await collect(hub.alps.mailbox(2))
        (envelope,) = await collect(hub.alps.mailbox(1))
        (receipt,) = [each for each in envelope.entries if isinstance(each.content, Receipt)]
        assert receipt.content == Receipt(2, compute_item_digest(HELP))
        assert await hub.events() == ["raised", "heard by"]
        assert (await hub.told("GET", "/api/sos/1"))["state"] == "open"


async def test_refused_escalation_is_replayed_by_the_logged_id(store: Store) -> None:
    async with desk(store) as hub:
        made = webhook_directory.make_webhook("https://pager.example/", after=10)
        await store.commit(
            partial(webhook_directory.add_webhook, workspace=1, webhook=made, now=START)
        )
        await hub.alps.sends(1, HELP)
        (posting,) = await store.commit(lambda db: claim(db, START + 601))
        refused = HandoverResult(HandoverOutcome.REFUSED, "no such page")
        warning = await store.commit(lambda db: settle(db, posting, refused, START + 601))
        named = warning.partition("webhook replay ")[2].partition("`")[0]
        assert await store.commit(partial(replay_letter, named=named)) == 1


def replay_letter(db: Db, named: str) -> int:
    return webhook_directory.replay_dead_letters(db, 1, named, now=START + 700)


async def test_answer_without_permission_is_rejected_with_the_reason(store: Store) -> None:
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
        with pytest.raises(directory.Refused, match="must be a person"):
            await store.commit(_make_a_program_dispatcher)


def _make_a_program_dispatcher(db: Db) -> None:
    db.execute("UPDATE member SET type = 'Integration' WHERE id = 1")
    directory.set_role(db, 1, 1, "dispatcher", now=START)


async def test_incident_is_invisible_to_another_workspace(store: Store) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        incident = await store.read(lambda db: sos.find_incident(db, 2, 1))
        assert incident is None


async def test_unanswered_sos_is_escalated_to_the_next_webhook(store: Store) -> None:
    async with desk(store) as hub:

        def settle_in(db: Db) -> None:
            for after in (0, 10, 20):
                contact = Webhook(0, f"https://desk.example/{after}", after=after)
                webhook_directory.add_webhook(db, 1, contact, now=START)

        ids: list[str] = []

        async def told() -> list[str]:
            """The webhooks accept them."""
            posts = await store.commit(
                lambda db: claim(db, hub.alps.now, desk="https://hub.example.org")
            )
            ids.extend(post.delivery.request_id for post in posts)
            for post in posts:
                event = json.loads(post.delivery.body)["payloads"][0]["events"][0]
                if event.get("sos"):
                    assert event["incident"]["desk"] == "https://hub.example.org/console/sos/1"
                    assert (event["incident"]["number"], event["incident"]["device"]) == (
                        7,
                        "kit 1",
                    )
            for post in posts:
                taken = HandoverResult(HandoverOutcome.HANDED)
                write_down = partial(settle, posting=post, result=taken, now=hub.alps.now)
                await store.commit(write_down)
            return [post.webhook.url.rpartition("/")[2] for post in posts]

        await store.commit(settle_in)
        await hub.alps.sends(1, Entry(1, Message("all well"), int(START)))
        assert await told() == ["0"]
        await hub.alps.sends(1, HELP)
        assert await told() == ["0"]
        hub.alps.now += 599
        assert await told() == []
        await store.commit(lambda db: webhook_directory.enable_webhook(db, 1, 2, now=START))
        assert await told() == []
        hub.alps.now += 1
        assert await told() == ["10"]
        assert len({*ids}) == len(ids), "an escalation is a message of its own"
        await hub.told("POST", "/api/sos/1/acknowledge")
        hub.alps.now += 3600
        assert await told() == []
        assert await hub.events() == ["raised", "webhook", "escalated", "seen"]


async def test_lost_answer_is_repeated_at_growing_intervals(store: Store) -> None:
    async with desk(store) as hub:
        key = derive_key(MASTER, "MO")

        async def repeat() -> int:
            """Return the number of messages for the answer to it."""
            before = len(hub.alps.sky.taken)
            await hub.alps.sends(3, HELP, bearer=Bearer.SATELLITE, key=key)
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
        assert await hub.events() == ["raised", "seen"]


@pytest.mark.parametrize(("before", "state"), [(0, "open"), (1, "closed")])
async def test_message_in_the_second_of_closing_reopens_the_incident(
    store: Store, before: int, state: str
) -> None:
    """The news has a time in whole seconds, so the kit did not know yet that the incident had
    ended.
    """
    async with field_of(store) as alps:
        await alps.sends(1, Entry(7, Message("help"), int(alps.now), True))
        ((incident,),) = await alps.rows("SELECT id FROM sos")
        await store.commit(lambda db: sos.set_closed(db, incident, int(alps.now) + 0.7))
        said = Entry(8, Message("once more"), int(alps.now) - before, True, 1)
        await alps.sends(1, said)
        assert await alps.rows("SELECT state FROM sos") == [(state,)]


CROWD = 97


async def test_many_events_do_not_hide_the_text_of_an_sos(store: Store) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        await hub.told("POST", "/api/sos/1/acknowledge", {"note": "heli is up"})

        def crowd(db: Db) -> None:
            for at in range(CROWD):
                for event in ("heard by", "notified", "not notified", "webhook"):
                    sos.record_event(db, 1, event, hub.alps.now + at, detail=f"{event} {at}")

        await hub.alps.store.commit(crowd)
        for number in range(60):
            place = Location(46.5, 7.25 + number / 1000)
            hub.alps.now += 1
            await hub.alps.sends(1, Entry(8 + number, place, int(hub.alps.now)))
        incident = await hub.told("GET", "/api/sos/1")
        thread = incident["thread"]
        first = next(each for each in thread if each["item"])
        assert first["item"]["event"]["content"] == "leg broken"
        assert [each["detail"] for each in thread if each["event"] == "seen"] == ["heli is up"]
        counted = {each["event"]: (each["count"], each["detail"]) for each in thread}
        for event in ("heard by", "notified", "not notified", "webhook"):
            assert counted[event] == (CROWD, f"{event} {CROWD - 1}")
        assert len([each for each in thread if each["count"] > 1]) == 4
        assert incident["items"][0]["event"]["content"] == "leg broken"


async def test_few_automatic_events_are_shown_one_by_one(store: Store) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        for count in range(1, 5):
            note = partial(
                sos.record_event, sos=1, event="notified", now=hub.alps.now, detail="Ben"
            )
            await hub.alps.store.commit(note)
            thread = (await hub.told("GET", "/api/sos/1"))["thread"]
            steps = [each["count"] for each in thread if each["event"] == "notified"]
            assert steps == ([4] if count == 4 else [1] * count)


async def test_kit_and_hub_show_the_same_short_number(store: Store) -> None:
    async with desk(store) as d:
        await d.alps.sends(1, replace(HELP, sequence=70_000_417))
        assert (
            (await d.told("GET", "/api/sos/1"))["short"]
            == format_short_sos_number(70_000_417)
            == "417"
        )


async def test_closed_incident_keeps_its_position(store: Store) -> None:
    async with desk(store) as d:
        before = Location(46.5, 7.25)
        await d.alps.sends(1, Entry(3, before, int(START) - 3_600))
        await d.alps.sends(1, HELP)
        there = Location(46.6, 7.35)
        await d.alps.sends(1, Entry(8, there, int(START), sos=True, items_back=1))
        shown = await d.told("GET", "/api/sos/1")
        assert (shown["position"]["latitude"], shown["position"]["longitude"]) == (46.6, 7.35)
        d.alps.now += 600
        await d.alps.sends(1, Entry(9, Location(46.7, 7.45), int(d.alps.now)))
        moved = await d.told("GET", "/api/sos/1")
        assert moved["position"]["latitude"] == 46.7, "open: where its kit is now"
        await d.told("POST", "/api/sos/1/close", {"reason": "found"})
        d.alps.now += 86_400
        await d.alps.sends(1, Entry(10, Location(40.0, 1.0), int(d.alps.now)))
        for shown in (
            await d.told("GET", "/api/sos/1"),
            (await d.told("GET", "/api/sos?state=closed"))["sos"][0],
        ):
            assert shown["position"]["latitude"] == 46.7
