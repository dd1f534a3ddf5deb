"""Heads and framings made to cost as much as possible: none of them delays others."""

from __future__ import annotations

import pytest
import trio

from tests.http.loop_lag import FREEZE, LongestStep
from tests.http.serving import HOST, JSON, serving

GET = b"GET / HTTP/1.1\r\n" + HOST
POST = b"POST /echo HTTP/1.1\r\n" + HOST + JSON
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def filled(before: bytes, unit: bytes, after: bytes = b"\r\n\r\n", size: int = 16_000) -> bytes:
    return before + unit * ((size - len(before) - len(after)) // len(unit)) + after


def target(unit: bytes, before: bytes = b"GET /") -> bytes:
    return filled(before, unit, b" HTTP/1.1\r\n" + HOST + b"\r\n", 7_900)


HOSTILE = {
    "lines": filled(GET, b"a:\r\n", b"\r\n"),
    "lines of one name": filled(GET, b"x-name: a\r\n", b"\r\n"),
    "proxies": filled(GET + b"X-Forwarded-For: a", b",10.0.0.1"),
    "blanks": filled(GET + b"X: ", b" \t"),
    "options of a connection": filled(GET + b"Connection: ", b"close ,x,"),
    "blanks in an option": filled(GET + b"Connection: ", b" ", b"x\r\n\r\n"),
    "a cookie": filled(GET + b'Cookie: a="', b"\\", b'"\r\n\r\n'),
    "an origin": filled(GET + b"Origin: http://", b"a"),
    "a type": filled(POST + b"Content-Length: 2\r\nContent-Type: application/json", b" \t"),
    "codings": filled(POST + b"Transfer-Encoding: ", b"chunked,"),
    "a length": filled(POST + b"Content-Length: ", b"9"),
    "an expectation": filled(POST + b"Expect: ", b"100-continue,"),
    "a key": filled(POST + b"Content-Length: 2\r\nIdempotency-Key: ", b'"a'),
    "members of a query": target(b"a&", b"GET /?"),
    "escapes of a query": target(b"%41", b"GET /?"),
    "segments": target(b"a/"),
    "escaped segments": target(b"%2e/"),
    "an authority": target(b"a", b"GET http://"),
    "no end": filled(GET, b"a: b\r\n", b""),
    "empty lines": b"\r\n" * 30_000,
    "a pipeline": (GET + b"\r\n") * 1_500,
    "tiny chunks": CHUNKED + b"1\r\na\r\n" * 13_000,
    "extensions": CHUNKED + b'1;a=b ; c = "\\d";e\r\na\r\n' * 3_000,
    "an extension": CHUNKED + b'1;a="' + b"\\a" * 110 + b"\r\n",
    "trailers": CHUNKED + b"0\r\n" + b"a:\r\n" * 4_000,
    "zeros": CHUNKED + b"0" * 250 + b"1\r\na\r\n",
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_head_or_framing_does_not_delay_others(name: str) -> None:
    async with serving() as server, server.client() as client:
        steps = LongestStep()
        trio.lowlevel.add_instrument(steps)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.rest)
            try:
                await client.send(HOSTILE[name])
                await trio.testing.wait_all_tasks_blocked(0.05)
            except trio.BrokenResourceError:  # refused before all of it was sent
                pass
            nursery.cancel_scope.cancel()
        trio.lowlevel.remove_instrument(steps)
        assert steps.seconds < FREEZE, steps.task
