"""The head decides about the admission, before the body is requested, awaited or read."""

from __future__ import annotations

import json

import pytest

from fieldagent.http.guard import get_required_body
from fieldagent.http.message import FORM, Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import OTHER_BODY_MAX_BYTES, Route, make_router
from tests.http.serving import HOST, JSON, header, serving


async def admit_named(head: Request) -> str:
    """Admit each caller with a name, and see no body: the judge of the routes."""
    assert head.body == b""
    name = head.headers.get("x-name")
    if name is None:
        raise Problem(401, "who are you?")
    if name == "broken":
        raise RuntimeError("as a test")
    return name


async def greet(request: Request, caller: str) -> Response:
    return make_json_response({"caller": caller, "size": len(get_required_body(request))})


async def look(request: Request) -> Response:
    return make_json_response({})


ROUTER = make_router(
    [
        Route("POST", "/greet", greet, judge=admit_named),
        Route("POST", "/small", greet, judge=admit_named, body=10, media_types=(FORM,)),
        Route("GET", "/", look),
    ]
)
HEAD = b"POST /greet HTTP/1.1\r\n" + HOST + JSON
WAITING = b"Expect: 100-continue\r\n"
LONG = b"Content-Length: 1000000\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
SMALL = HEAD.replace(b"/greet", b"/small") + b"X-Name: Ada\r\n"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (HEAD + LONG, 401),
        (HEAD + CHUNKED, 401),
        (HEAD + LONG + WAITING, 401),
        (HEAD + CHUNKED + WAITING, 401),
        (HEAD + LONG + WAITING + b"X-Name: broken\r\n", 500),
        (HEAD.replace(b"/greet", b"/nowhere") + LONG + WAITING, 404),
        (HEAD.replace(b"POST", b"PUT") + LONG + WAITING, 405),
        (SMALL + b"Content-Length: 11\r\n" + WAITING, 413),
        (SMALL.replace(JSON, b"") + b"Content-Length: 2\r\n" + WAITING, 415),
        (
            b"GET / HTTP/1.1\r\n"
            + HOST
            + JSON
            + b"Content-Length: %d\r\n" % (OTHER_BODY_MAX_BYTES + 1),
            413,
        ),
    ],
)
async def test_refusal_is_sent_before_the_body_is_received(head: bytes, status: int) -> None:
    async with serving(judge=ROUTER) as server, server.client() as client:
        await client.send(head + b"\r\n")
        received = (await client.stream.receive_some()).decode()
        assert received.startswith(f"HTTP/1.1 {status} ")
        assert "\r\nconnection: close\r\n" in received


async def test_admitted_caller_gets_100_continue() -> None:
    async with serving(judge=ROUTER) as server, server.client() as client:
        await client.send(HEAD + b"X-Name: Ada\r\nContent-Length: 2\r\n" + WAITING + b"\r\n")
        assert await client.stream.receive_some() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"{}")
        assert json.loads((await client.answer())[1]) == {"caller": "Ada", "size": 2}


async def test_refusal_keeps_the_connection_if_the_body_has_arrived() -> None:
    async with serving(judge=ROUTER) as server, server.client() as client:
        for _ in range(3):
            await client.send(HEAD + b"Content-Length: 2\r\n\r\n{}")
            response, _ = await client.answer()
            assert (response.status_code, header(response, "connection")) == (401, None)
        assert await client.is_served()


async def test_endless_refused_upload_is_closed() -> None:
    async with serving(judge=ROUTER) as server, server.client() as client:
        await client.send(HEAD + CHUNKED + b"\r\n" + b"5\r\nhello\r\n" * 1_000)
        assert (await client.answer())[0].status_code == 401
        assert await client.rest() == b""


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"Content-Length: 10\r\n\r\n0123456789", 200),
        (CHUNKED + b"\r\n5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n", 200),
        (CHUNKED + b"\r\n5\r\n01234\r\n6\r\n", 413),
        (CHUNKED + b"\r\nb\r\n", 413),
    ],
)
async def test_route_has_its_own_body_limit(body: bytes, status: int) -> None:
    async with serving(judge=ROUTER) as server, server.client() as client:
        await client.send(SMALL + body)
        assert (await client.answer())[0].status_code == status


async def test_form_body_is_accepted_only_by_routes_for_forms() -> None:
    form = JSON.replace(b"application/json", b"application/x-www-form-urlencoded")
    async with serving(judge=ROUTER) as server, server.client() as client:
        for head, status in ((SMALL, 200), (HEAD + b"X-Name: Ada\r\n", 415)):
            await client.send(head.replace(JSON, form) + b"Content-Length: 3\r\n\r\na=1")
            assert (await client.answer())[0].status_code == status
