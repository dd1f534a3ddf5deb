"""RockBLOCK's webhook at the hub's socket, and its MT service played by the test."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest
import trio

from fieldagent.http.client import Reply, request
from fieldagent.http.listeners import get_port, open_listeners
from fieldagent.http.message import Judge, Request, Response
from fieldagent.http.routes import Route, make_router
from fieldagent.http.server import serve
from fieldagent.hub.contract import Estimate
from fieldagent.hub.operator.contract import Verdict
from fieldagent.hub.operator.rockblock import PATH, ROCKBLOCK, RockBlock, make_mo_route
from fieldagent.wire.outcome import Outcome
from tests.hostile_bodies import BODIES
from tests.hostile_bodies import FORMS as HOSTILE_FORMS
from tests.http.loop_lag import FREEZE, LongestStep
from tests.http.serving import anybody
from tests.wire.test_rockblock import FORM, KEY, NOW, claims, token

IMEI = FORM["imei"]
FORMS = "application/x-www-form-urlencoded"


@asynccontextmanager
async def serving(judge: Judge) -> AsyncIterator[str]:
    listeners = open_listeners(0, ["127.0.0.1"])
    url = f"http://127.0.0.1:{get_port(listeners)}"
    async with trio.open_nursery() as nursery:
        stopping = trio.Event()
        await nursery.start(partial(serve, judge, listeners, stop_event=stopping))
        yield url
        nursery.cancel_scope.cancel()


class Store:
    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes]] = []
        self.seen_at: list[Estimate | None] = []
        self.fail: Exception | None = None

    async def take_in(
        self, imei: str, body: bytes, estimate: Estimate | None, *, unusable: str = ""
    ) -> None:
        assert not unusable
        if self.fail is not None:
            raise self.fail
        self.taken.append((imei, body))
        self.seen_at.append(estimate)


async def bring(url: str, form: dict[str, Any], *, as_json: bool = False) -> Reply:
    kind = "application/json" if as_json else FORMS
    body = json.dumps(form) if as_json else urlencode(form)
    headers = (("Content-Type", kind),)
    return await request("POST", url + PATH, headers=headers, body=body.encode(), deadline=20)


@pytest.mark.parametrize("as_json", [False, True])
async def test_signed_mo_message_is_stored_and_returns_200(as_json: bool) -> None:
    store = Store()
    async with serving(make_router([make_mo_route(store.take_in, KEY, clock=lambda: NOW)])) as url:
        signed = {**FORM, "JWT": token(claims())}
        assert (await bring(url, signed, as_json=as_json)).status == 200
        assert store.taken == [(IMEI, b"Hello")]


async def test_unsigned_or_unstored_mo_message_is_not_confirmed() -> None:
    store = Store()
    async with serving(make_router([make_mo_route(store.take_in, KEY, clock=lambda: NOW)])) as url:
        signed = {**FORM, "JWT": token(claims())}
        assert (await bring(url, FORM)).status == 401
        assert (await bring(url, {**signed, "data": "00"})).status == 401
        store.fail = OSError("the disk is full")
        assert (await bring(url, signed)).status == 500
        assert store.taken == []
        headers = (("Content-Type", "application/json"),)
        reply = await request("POST", url + PATH, headers=headers, body=b"[1]", deadline=20)
        assert reply.status == 400


PARTS = "three parts, not"
ALGORITHM = "names no algorithm"
DEPTH = "not a JSON Web Token: head: the body is nested deeper than 16"
UNUSABLE: dict[str, tuple[bytes, str]] = {
    "no token": (b"data=00", PARTS),
    "two parts": (b"JWT=a.b", PARTS),
    "a list for a head": (b"JWT=WzFd.e30.AA", ALGORITHM),
    "a head without it": (b"JWT=e30.e30.AA", ALGORITHM),
    **{
        f"a head of {depth} arrays": (b"JWT=" + b"W1tb" * (depth // 3) + b".e30.AA", DEPTH)
        for depth in (18, 300, 3_000, 6_000, 11_000)
    },
    "no ASCII": (b"JWT=\xff", "not all of it is ASCII"),
    "null": (b"null", "it has other content"),
    "an array": (b"[]", "it has other content"),
    "a text": (b'"a"', "it has other content"),
}


@pytest.mark.parametrize("name", UNUSABLE)
async def test_invalid_mo_request_is_rejected_with_the_reason(name: str) -> None:
    """A person who configures the webhook at RockBLOCK reads the reason there."""
    body, why = UNUSABLE[name]
    kind = FORMS if b"=" in body else "application/json"
    async with serving(
        make_router([make_mo_route(Store().take_in, KEY, clock=lambda: NOW)])
    ) as url:
        headers = (("Content-Type", kind),)
        reply = await request("POST", url + PATH, headers=headers, body=body, deadline=20)
    assert reply.status in (400, 401)
    assert why in json.loads(reply.body)["detail"]


async def test_hostile_forms_do_not_block_other_requests() -> None:
    store = Store()
    async with serving(make_router([make_mo_route(store.take_in, KEY, clock=lambda: NOW)])) as url:
        for kind, bodies in ((FORMS, HOSTILE_FORMS), ("application/json", BODIES)):
            for name, body in bodies.items():
                steps = LongestStep()
                trio.lowlevel.add_instrument(steps)
                headers = (("Content-Type", kind),)
                reply = await request("POST", url + PATH, headers=headers, body=body, deadline=20)
                trio.lowlevel.remove_instrument(steps)
                assert reply.status in (400, 401, 413), name
                assert len(reply.body) < 1_000, name
                assert steps.seconds < FREEZE, (name, steps.task)


async def test_form_is_accepted_only_at_the_rockblock_route() -> None:
    async def anything(asked: Request) -> Response:
        return Response(200)

    async with serving(make_router([Route("POST", "/api", anything)])) as url:
        headers = (("Content-Type", FORMS),)
        reply = await request("POST", f"{url}/api", headers=headers, body=b"a=1", deadline=20)
        assert reply.status == 415
        assert FORMS not in reply.headers["accept"]
    async with serving(
        make_router([make_mo_route(Store().take_in, KEY, clock=lambda: NOW)])
    ) as url:
        headers = (("Content-Type", "text/plain"),)
        reply = await request("POST", url + PATH, headers=headers, body=b"a=1", deadline=20)
        assert reply.status == 415
        assert FORMS in reply.headers["accept"]


class Service:
    """Their MT service: it answers as the test wants, and keeps the forms."""

    def __init__(self, answer: bytes, status: int = 200) -> None:
        self.answer = Response(status, answer, "text/plain")
        self.forms: list[dict[str, list[str]]] = []

    async def handle(self, asked: Request) -> Response:
        self.forms.append(parse_qs(asked.body.decode()))
        return self.answer


async def call(service: Service) -> Verdict:
    async with serving(anybody(service.handle)) as url:
        operator = RockBlock(f"{url}/MT", "me", "secret")
        return await operator.send(IMEI, b"Hi", number=4, priority=False)


async def test_accepted_mt_message_is_sent() -> None:
    service = Service(b"OK,4711")
    assert await call(service) == Verdict(Outcome.SENT)
    (form,) = service.forms
    assert form == {"imei": [IMEI], "username": ["me"], "password": ["secret"], "data": ["4869"]}


async def test_each_mt_code_has_an_outcome_and_a_reason() -> None:
    for code in range(120):
        verdict = await call(Service(b"FAILED,%d,Some text" % code))
        assert verdict.outcome is Outcome.NOT_SENT
        if code in ROCKBLOCK:
            assert verdict == Verdict(Outcome.NOT_SENT, ROCKBLOCK[code])
        else:
            assert f"answered {code}, Some text" in verdict.reason


async def test_unclear_mt_answer_is_doubtful() -> None:
    verdict = await call(Service(b"<html>Bad gateway</html>", 502))
    assert verdict.outcome is Outcome.DOUBTFUL


async def test_mt_message_to_unreachable_service_is_not_sent() -> None:
    (listener,) = open_listeners(0, ["127.0.0.1"])
    port = get_port([listener])
    listener.close()
    operator = RockBlock(f"http://127.0.0.1:{port}/MT", "me", "secret")
    verdict = await operator.send(IMEI, b"Hi", number=4, priority=False)
    assert verdict.outcome is Outcome.NOT_SENT
    assert "connection refused" in verdict.reason
