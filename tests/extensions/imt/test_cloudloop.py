"""Cloudloop's webhook at the hub's socket, and its Data API played by the test."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fieldagent.extensions.imt.hub import cloudloop
from fieldagent.extensions.imt.hub.lingo import parse_lingo
from fieldagent.http.client import Reply, request
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.routes import make_router
from fieldagent.hub.contract import Estimate
from fieldagent.hub.operator.contract import FarModem, Operator, OperatorHost
from fieldagent.hub.operator.failures import Scope
from fieldagent.hub.records import operator_trouble
from fieldagent.hub.records.operator_book import OperatorBook
from fieldagent.hub.store.contract import Store
from fieldagent.store.group import StoreUnavailable
from fieldagent.system.supervisor import log_fault
from fieldagent.wire.outcome import Outcome
from tests.http.serving import anybody
from tests.hub.field import field_of
from tests.hub.operator.gateways import Shelf
from tests.hub.test_rockblock import serving
from tests.processes import until_async
from tests.running import running

SECRET, OTHER, TOKEN = "s" * 32, "o" * 32, "token"
IMEI, THING = "300258060000001", "t" * 32
NOW = 1_790_000_000.0


def lingo(body: bytes = b"Hello", **members: Any) -> dict[str, Any]:
    return {
        "id": "38f132ed-73e7-4488-a743-ec00fe7d7879",
        "identity": {"hardware": {"imei": IMEI}, "thingId": THING},
        "imt": {"topic": "IMT_TOPIC_RAW", "crcError": False, "size": len(body)},
        "message": base64.b64encode(body).decode().rstrip("="),
        **members,
    }


class Hub:
    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes, str]] = []
        self.where: Estimate | None = None
        self.fail: Exception | None = None
        self.book = Shelf()
        self.counted: list[tuple[str, str, int]] = []

    async def take_in(
        self, imei: str, body: bytes, estimate: Estimate | None, *, unusable: str = ""
    ) -> None:
        if self.fail is not None:
            raise self.fail
        self.taken.append((imei, body, unusable))
        self.where = estimate

    async def record_modem_session(self, imei: str, *, fetched: bool) -> None:
        pass

    async def count_session(self, imei: str, session: str, size: int) -> None:
        self.counted.append((imei, session, size))

    def lent(self) -> OperatorHost:
        lent = self.take_in, self.record_modem_session, log_fault, lambda: NOW, self.book
        return OperatorHost(*lent, self.count_session)


def own(tmp_path: Path, url: str = "http://127.0.0.1:1") -> dict[str, Any]:
    (tmp_path / "token").write_text(TOKEN)
    return {
        **{key.name: key.default for key in cloudloop.KIND.keys},
        "cloudloop-secret": (SECRET, OTHER),
        "cloudloop-token": tmp_path / "token",
        "cloudloop-address": url,
    }


@asynccontextmanager
async def webhook(tmp_path: Path) -> AsyncIterator[tuple[Hub, str]]:
    hub = Hub()
    async with serving(make_router(cloudloop.KIND.routes(own(tmp_path), hub.lent()))) as url:
        yield hub, url


async def bring(url: str, document: object, secret: str = SECRET) -> Reply:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    headers = (("Content-Type", "application/json"),)
    where = f"{url}/operator/cloudloop/{secret}"
    return await request("POST", where, headers=headers, body=body, deadline=20)


@pytest.mark.parametrize("secret", [SECRET, OTHER])
async def test_mo_message_is_stored_and_answered_with_200(tmp_path: Path, secret: str) -> None:
    """During a rotation, two secrets are valid."""
    async with webhook(tmp_path) as (hub, url):
        assert (await bring(url, lingo(), secret)).status == 200
        assert hub.taken == [(IMEI, b"Hello", "")]
        assert hub.book.known == {IMEI: ("imt", THING)}


async def test_repeated_mo_message_is_stored_once(tmp_path: Path) -> None:
    async with webhook(tmp_path) as (hub, url):
        for _ in range(3):
            assert (await bring(url, lingo())).status == 200
        assert len(hub.taken) == 1


async def test_invalid_location_does_not_block_the_message(tmp_path: Path) -> None:
    async with webhook(tmp_path) as (hub, url):
        place = {"latitude": 10**400, "longitude": 7, "cep": 3}
        assert (await bring(url, lingo(imt={"location": place}))).status == 200
        assert (hub.taken, hub.where) == ([(IMEI, b"Hello", "")], None)


@pytest.mark.parametrize("name", ["a\0", "a\ud800"])
async def test_name_that_no_database_stores_does_not_block_the_message(
    store: Store, name: str
) -> None:
    async with field_of(store) as alps:
        hub = Hub()
        lent = hub.lent()._replace(book=OperatorBook(store, "cloudloop", alps.clock))
        document = lingo(id=name, identity={"hardware": {"imei": IMEI}, "thingId": name})
        for _ in range(2):
            await cloudloop.store_lingo(parse_lingo(document), "RAW", lent)
        assert hub.taken == [(IMEI, b"Hello", "")]


async def test_wrong_secret_is_refused_before_the_body_is_read(tmp_path: Path) -> None:
    async with webhook(tmp_path) as (hub, url):
        reply = await bring(url, lingo(), "x" * 32)
        assert reply.status == 404
        assert b"x" * 32 not in reply.body
        assert hub.taken == []


async def test_failed_store_is_not_confirmed_and_the_message_is_accepted_later(
    tmp_path: Path,
) -> None:
    async with webhook(tmp_path) as (hub, url):
        hub.fail = StoreUnavailable("the database is away")
        assert (await bring(url, lingo())).status >= 500
        hub.fail = None
        assert (await bring(url, lingo())).status == 200
        assert len(hub.taken) == 1


async def test_mo_message_of_an_sbd_modem_is_stored(tmp_path: Path) -> None:
    payload = lingo()
    del payload["imt"]
    location = {"latitude": 47.4, "longitude": 8.5, "cep": 3.2}
    payload["sbd"] = {"imei": IMEI, "momsn": 7, "location": location}
    async with webhook(tmp_path) as (hub, url):
        assert (await bring(url, payload)).status == 200
        assert hub.taken == [(IMEI, b"Hello", "")]
        assert hub.where == Estimate(47.4, 8.5, 3)
        assert hub.book.known == {IMEI: ("sbd", THING)}


UNUSABLE: dict[str, tuple[object, str]] = {
    "no JSON": (b"Hello", "from Cloudloop"),
    "an array": ([], "must be a JSON object"),
    "no IMEI": (lingo(identity={}), "is not an IMEI"),
    "another network": (
        {name: value for name, value in lingo().items() if name != "imt"},
        "neither an SBD nor an IMT modem",
    ),
    "no base64": (lingo(message="a*b"), "not base64"),
    "a number": (lingo(message=5), "not a text"),
    "a wrong CRC": (lingo(imt={"crcError": True, "topic": "IMT_TOPIC_RAW"}), "CRC is wrong"),
    "a wrong size": (lingo(imt={"size": 99}), "its size is 99"),
    "another topic": (lingo(imt={"topic": "IMT_TOPIC_PINK"}), "the topic PINK"),
}


@pytest.mark.parametrize("name", UNUSABLE)
async def test_unusable_message_is_kept_with_the_reason(tmp_path: Path, name: str) -> None:
    document, why = UNUSABLE[name]
    async with webhook(tmp_path) as (hub, url):
        assert (await bring(url, document)).status == 200
        ((_, body, reason),) = hub.taken
        assert body
        assert why in reason


async def test_mailbox_check_stores_nothing(tmp_path: Path) -> None:
    async with webhook(tmp_path) as (hub, url):
        assert (await bring(url, lingo(b""))).status == 200
        assert hub.taken == []
        assert hub.book.known


# The Data API.


class Service:
    """Answers each call by its name, and keeps the requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Response] = {}

    async def handle(self, asked: Request) -> Response:
        name = asked.path.rpartition("/")[2]
        assert TOKEN not in asked.path
        self.asked.append((name, json.loads(asked.body or b"{}")))
        sent = make_json_response({"id": "mt-1", "status": "Received", "error": ""})
        return self.answers.get(name, sent)


@asynccontextmanager
async def service(tmp_path: Path) -> AsyncIterator[tuple[Service, Operator, str]]:
    played = Service()
    async with serving(anybody(played.handle)) as url:
        caller = cloudloop.KIND.caller(own(tmp_path, url))
        assert caller is not None
        yield played, caller, url


HERE = FarModem("imt", THING)


async def test_mt_message_is_sent_to_an_imt_modem(tmp_path: Path) -> None:
    async with service(tmp_path) as (played, caller, _):
        verdict = await caller.send(IMEI, b"down", number=1, priority=True, modem=HERE)
        assert (verdict.outcome, verdict.id) == (Outcome.SENT, "mt-1")
        ((name, asked),) = played.asked
        assert name == "DoSendImtMessage"
        assert asked == {
            "token": TOKEN,
            "thing": THING,
            "message": "ZG93bg==",
            "topic": "IMT_TOPIC_RAW",
            "ringStyle": "RING_STYLE_URGENT",
        }


async def test_mt_message_to_an_sbd_modem_is_sent_as_hexadecimal(tmp_path: Path) -> None:
    async with service(tmp_path) as (played, caller, _):
        modem = FarModem("sbd", THING)
        await caller.send(IMEI, b"down", number=1, priority=False, modem=modem)
        ((name, asked),) = played.asked
        assert name == "DoSendSbdMessage"
        assert asked["message"] == "646f776e"


async def test_no_call_is_made_for_a_modem_without_a_thing_id(tmp_path: Path) -> None:
    async with service(tmp_path) as (played, caller, _):
        verdict = await caller.send(IMEI, b"down", number=1, priority=False)
        assert verdict.outcome is Outcome.NOT_SENT
        assert "the hub learns from its first message" in verdict.reason
        assert played.asked == []


@pytest.mark.parametrize(
    ("status", "body", "scope"),
    [
        (401, b"", Scope.ACCOUNT),
        (403, b"", Scope.ACCOUNT),
        (402, b"", Scope.ACCOUNT),
        (400, b'{"error": "insufficient credit"}', Scope.ACCOUNT),
        (404, b"", Scope.DEVICE),
        (429, b"", Scope.GATEWAY),
        (400, b'{"error": "message too long"}', Scope.MESSAGE),
        (200, b'{"error": "no credits left"}', Scope.ACCOUNT),
    ],
)
async def test_refusal_is_attributed_to_account_or_device(
    tmp_path: Path, status: int, body: bytes, scope: Scope
) -> None:
    async with service(tmp_path) as (played, caller, _):
        played.answers["DoSendImtMessage"] = Response(status, body, "application/json")
        verdict = await caller.send(IMEI, b"down", number=1, priority=False, modem=HERE)
        assert verdict.outcome is Outcome.NOT_SENT
        assert verdict.failure is not None
        assert verdict.failure.scope is scope


async def test_missing_token_file_is_reported(tmp_path: Path) -> None:
    async with service(tmp_path) as (played, caller, _):
        (tmp_path / "token").unlink()
        verdict = await caller.send(IMEI, b"down", number=1, priority=False, modem=HERE)
        assert "cloudloop-token" in verdict.reason
        assert played.asked == []


def history(body: bytes, *, direction: str = "MT", thing: str = THING, id_: str = "r1") -> Response:
    record = {
        "snippet": body[:128].hex(),
        "at": "2026-09-21T14:13:20",
        "size": len(body),
        "id": id_,
        "type": "IMT",
        "thing": thing,
        "direction": direction,
    }
    odd = {**record, "id": "odd", "size": float("inf")}
    listed = json.dumps({"messageRecords": [record, odd, {"id": "broken"}]}).encode()
    return Response(200, listed, "application/json")


@pytest.mark.parametrize("body", [b"down", bytes(500)])
async def test_doubtful_mt_message_is_settled_by_the_history(tmp_path: Path, body: bytes) -> None:
    async with service(tmp_path) as (played, caller, _):
        played.answers["DoSendImtMessage"] = Response(502, b"")
        first = await caller.send(IMEI, body, number=1, priority=False, modem=HERE)
        assert first.outcome is Outcome.DOUBTFUL
        played.answers["GetMessageRecords"] = history(body)
        again = HERE._replace(tries=1, since=NOW)
        second = await caller.send(IMEI, body, number=1, priority=False, modem=again)
        assert (second.outcome, second.id) == (Outcome.SENT, "r1")
        assert [name for name, _ in played.asked] == ["DoSendImtMessage", "GetMessageRecords"]


@pytest.mark.parametrize(
    "answer", [history(b"other"), history(b"down", direction="MO"), history(b"down", thing="u")]
)
async def test_mt_message_missing_from_the_history_is_sent_again(
    tmp_path: Path, answer: Response
) -> None:
    async with service(tmp_path) as (played, caller, _):
        played.answers["GetMessageRecords"] = answer
        again = HERE._replace(tries=1, since=NOW)
        verdict = await caller.send(IMEI, b"down", number=1, priority=False, modem=again)
        assert verdict.id == "mt-1"


@pytest.mark.parametrize("kept", [0.5, 400.0])
async def test_doubtful_mt_message_is_settled_by_a_long_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: float
) -> None:
    """The history of a large fleet, of which one answer contains only some minutes, or less than
    necessary.
    """
    monkeypatch.setattr(cloudloop, "ANSWER_BYTES", 4_096)
    since = time.time() - 3_600

    def seconds(text: str) -> float:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()

    class Full(Service):
        async def handle(self, asked: Request) -> Response:
            answer = await super().handle(asked)
            name, members = self.asked[-1]
            if name != "GetMessageRecords":
                return answer
            begin, end = seconds(members["from"]), seconds(members.get("to", "2999-01-01"))
            if end - begin > kept:
                return Response(200, bytes(cloudloop.ANSWER_BYTES + 1))
            there = begin <= since + 60 <= end
            return history(b"down", thing=THING if there else "u")

    full = Full()
    async with serving(anybody(full.handle)) as url:
        caller = cloudloop.KIND.caller(own(tmp_path, url))
        assert caller is not None
        again = HERE._replace(tries=1, since=since)
        verdict = await caller.send(IMEI, b"down", number=1, priority=False, modem=again)
    settled = (Outcome.SENT, "r1") if kept > 1 else (Outcome.DOUBTFUL, "")
    assert (verdict.outcome, verdict.id) == settled
    assert "DoSendImtMessage" not in [name for name, _ in full.asked]


async def fetch(tmp_path: Path, url: str, hub: Hub) -> None:
    """Run one round of the polling task."""
    api = cloudloop.Cloudloop(url, tmp_path / "token", "RAW")
    await cloudloop._Fetch(api, hub.lent(), 60.0, 0)._fetch_missed()


async def test_missed_mo_message_is_fetched_once_from_the_history(tmp_path: Path) -> None:
    hub = Hub()
    await hub.book.store_modem(IMEI, "imt", THING)
    async with service(tmp_path) as (played, _, url):
        played.answers["GetMessageRecords"] = history(b"missed", direction="MO")
        await fetch(tmp_path, url, hub)
        await fetch(tmp_path, url, hub)
    assert hub.taken == [(IMEI, b"missed", "")]
    assert hub.counted == [(IMEI, "r1", 6)], "it is on the bill, as what the webhook brings is"
    assert hub.book.until == NOW


async def test_mailbox_check_in_the_history_is_billed(tmp_path: Path) -> None:
    hub = Hub()
    await hub.book.store_modem(IMEI, "sbd", THING)
    async with service(tmp_path) as (played, _, url):
        played.answers["GetMessageRecords"] = history(b"", direction="MO")
        await fetch(tmp_path, url, hub)
    assert (hub.taken, hub.counted) == ([], [(IMEI, "r1", 0)])


@pytest.mark.parametrize(
    ("body", "thing", "why"),
    [(bytes(500), THING, "the first 128 of its 500 bytes"), (b"x", "u" * 32, "no device has")],
)
async def test_incomplete_history_record_is_kept_with_the_reason(
    tmp_path: Path, body: bytes, thing: str, why: str
) -> None:
    hub = Hub()
    await hub.book.store_modem(IMEI, "imt", THING)
    async with service(tmp_path) as (played, _, url):
        played.answers["GetMessageRecords"] = history(body, direction="MO", thing=thing)
        await fetch(tmp_path, url, hub)
    ((_, _, reason),) = hub.taken
    assert why in reason


async def test_history_of_a_long_outage_is_requested_by_day(tmp_path: Path) -> None:
    hub = Hub()
    hub.book.until = NOW - 3 * 86_400
    async with service(tmp_path) as (played, _, url):
        played.answers["GetMessageRecords"] = make_json_response({"messageRecords": []})
        await fetch(tmp_path, url, hub)
        spans = [(asked["from"], asked["to"]) for _, asked in played.asked]
    assert len(spans) == 4
    assert spans[0][0] < spans[0][1] == spans[1][0]


async def test_clock_that_was_ahead_does_not_block_the_history(tmp_path: Path) -> None:
    hub = Hub()
    hub.book.until = NOW + 30 * 86_400
    await hub.book.store_modem(IMEI, "imt", THING)
    async with service(tmp_path) as (played, _, url):
        played.answers["GetMessageRecords"] = history(b"missed", direction="MO")
        await fetch(tmp_path, url, hub)
    assert (hub.taken, hub.book.until) == ([(IMEI, b"missed", "")], NOW)


async def test_delivery_status_of_an_mt_message_is_polled(tmp_path: Path) -> None:
    hub = Hub()
    hub.book.handed["mt-1"] = ""
    async with service(tmp_path) as (played, _, url):
        played.answers["GetMtDeliveryStatus"] = make_json_response({"status": "Delivery Success"})
        api = cloudloop.Cloudloop(url, tmp_path / "token", "RAW")
        await cloudloop._Fetch(api, hub.lent(), 60.0, 0)._update_states()
    assert hub.book.handed == {"mt-1": "Delivery Success"}


@pytest.mark.parametrize(("status", "followed"), [(404, True), (400, True), (401, False)])
async def test_unknown_mt_message_does_not_block_the_status_of_others(
    tmp_path: Path, status: int, followed: bool
) -> None:
    hub = Hub()
    hub.book.handed |= {"gone": "", "mt-1": ""}

    async def answer(asked: Request) -> Response:
        known = json.loads(asked.body or b"")["message"] != "gone"
        return make_json_response({"status": "Delivery Success"}) if known else Response(status)

    async with serving(anybody(answer)) as url:
        own(tmp_path)
        api = cloudloop.Cloudloop(url, tmp_path / "token", "RAW")
        with pytest.raises(cloudloop._Refused):
            await cloudloop._Fetch(api, hub.lent(), 60.0, 0)._update_states()
    assert hub.book.handed == {"gone": "", "mt-1": "Delivery Success" if followed else ""}


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        ({"summary": [{"plan": "p", "remaining": 12.5}, {"remaining": True}, "?"]}, {"p": 12.5}),
        ({"summary": [{"remaining": 0}]}, {"a plan without a name": 0.0}),
        ({"summary": [{"remaining": 10**400}, {"plan": "p", "remaining": 1}]}, {"p": 1.0}),
        ({"summary": []}, {}),
    ],
)
async def test_remaining_balance_is_fetched_by_plan(
    tmp_path: Path, answer: object, left: dict[str, float]
) -> None:
    hub = Hub()
    async with service(tmp_path) as (played, _, url):
        played.answers["GetPoolSummary"] = make_json_response(answer)
        api = cloudloop.Cloudloop(url, tmp_path / "token", "RAW")
        await cloudloop._Fetch(api, hub.lent(), 60.0, 5000)._fetch_balance()
        ((_, asked),) = played.asked
    assert {"year", "month", "token"} == {*asked}
    assert hub.book.left == left


@pytest.mark.parametrize(
    "answer", [Response(404, b"{}"), make_json_response([]), Response(200, b"?")]
)
async def test_missing_balance_does_not_stop_the_history(
    tmp_path: Path, answer: Response, caplog: pytest.LogCaptureFixture
) -> None:
    hub = Hub()
    await hub.book.store_modem(IMEI, "imt", THING)
    async with service(tmp_path) as (played, _, url):
        played.answers["GetPoolSummary"] = answer
        played.answers["GetMessageRecords"] = history(b"missed", direction="MO")
        api = cloudloop.Cloudloop(url, tmp_path / "token", "RAW")
        async with running(cloudloop._Fetch(api, hub.lent(), 60.0, 1)):
            await until_async(lambda: hub.taken and "balance cannot be queried" in caplog.text)


async def test_low_balance_raises_one_alarm_until_recovery(store: Store) -> None:
    async with field_of(store) as alps:
        await store.commit(lambda db: db.execute("UPDATE device SET operator = 'cloudloop'"))
        book = OperatorBook(store, "cloudloop", alps.clock)
        raised = "SELECT count(*) FROM sos WHERE kind = 'operator'"
        for left, alarms in ((6000.0, 0), (4000.0, 1), (3000.0, 1), (9000.0, 1), (100.0, 2)):
            await book.record_balance({"POOL": left, "OTHER": 7000.0}, below=5000)
            assert await alps.rows(raised) == [(alarms,)]
            balances = await store.read(operator_trouble.list_balances)
            assert balances == [("cloudloop", "OTHER", 7000.0), ("cloudloop", "POOL", left)]
            # A later acceptance or refusal by an operator is another trouble.
            await store.commit(
                lambda db: operator_trouble.record_account_success(db, "cloudloop", alps.now)
            )
        ((words,),) = await alps.rows("SELECT words FROM item ORDER BY id DESC LIMIT 1")
        assert "100 of pool" in words.lower()
