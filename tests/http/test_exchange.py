"""Several requests on one connection, interim answers, streams, and the permitted acts of a
handler.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime

import pytest
import trio

from fieldagent.http.limits import Limits
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.protocol import MissingPart
from tests.http.serving import HOST, JSON, Requests, Ticks, header, serving

POST = b"POST /echo HTTP/1.1\r\n" + HOST + JSON
PAIR = (
    POST
    + b"Content-Length: 7\r\n\r\n[1,2,3]"
    + POST
    + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\n[4,\r\n2\r\n5]\r\n0\r\nX-Sum: 9\r\n\r\n"
)


def requests_in(requests: Requests, data: bytes) -> list[Request]:
    protocol = requests.protocol
    protocol.receive(data)
    all_requests = []
    while isinstance(request := requests.next(), Request):
        all_requests.append(request)
        protocol.respond(Response(204), date=b"x", close=False, head_only=False)
        assert protocol.start_next_cycle()
    return all_requests


@pytest.mark.parametrize("cut", range(1, len(PAIR)))
def test_two_requests_are_parsed_alike_at_any_cut(cut: int) -> None:
    requests = Requests(Limits())
    bodies = [r.body for part in (PAIR[:cut], PAIR[cut:]) for r in requests_in(requests, part)]
    assert bodies == [b"[1,2,3]", b"[4,5]"]
    assert requests.next() is MissingPart.IDLE


def test_two_requests_are_parsed_byte_by_byte() -> None:
    requests = Requests(Limits())
    bodies = [request.body for octet in PAIR for request in requests_in(requests, bytes([octet]))]
    assert bodies == [b"[1,2,3]", b"[4,5]"]


async def test_two_requests_on_a_socket_are_answered_in_order_at_any_cut() -> None:
    async with serving() as server:
        for cut in range(1, len(PAIR), 3):
            async with server.client() as client:
                pair = client.filled(PAIR)
                await client.send(pair[:cut])
                await trio.testing.wait_all_tasks_blocked()
                await client.send(pair[cut:])
                bodies = [json.loads((await client.answer())[1])["body"] for _ in range(2)]
                assert bodies == ["[1,2,3]", "[4,5]"]


async def test_long_pipeline_is_answered_in_order() -> None:
    async with serving() as server, server.client() as client:
        numbers = range(500)
        lines = (b"GET /named/%d HTTP/1.1\r\n" % number + HOST + b"\r\n" for number in numbers)
        await client.send(b"".join(lines))
        assert [json.loads((await client.answer())[1])["name"] for _ in numbers] == [
            str(number) for number in numbers
        ]


async def test_requests_after_a_refused_one_are_not_answered() -> None:
    async with serving() as server, server.client() as client:
        await client.send(POST + b"Content-Length: 2, 2\r\n\r\n{}" + PAIR)
        assert (await client.answer())[0].status_code == 400
        assert await client.rest() == b""


@pytest.mark.parametrize("path", [b"/", b"/nowhere"])
async def test_head_is_answered_like_get_without_a_body(path: bytes) -> None:
    async with serving() as server, server.client() as client:
        await client.send(b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n")
        got, body = await client.answer()
        await client.send(b"HEAD " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n")
        head, nothing = await client.answer("HEAD")
        assert (head.status_code, nothing) == (got.status_code, b"")
        assert header(head, "content-length") == str(len(body))
        assert await client.is_served()


async def test_100_continue_is_sent_once_the_head_is_accepted() -> None:
    async with serving() as server, server.client() as client:
        await client.send(POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert await client.stream.receive_some() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"{")
        await client.send(b"}")
        assert (await client.answer())[0].status_code == 200
        assert await client.is_served()


async def test_100_continue_is_not_sent_if_the_body_has_arrived() -> None:
    async with serving() as server, server.client() as client:
        await client.send(POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}")
        assert (await client.stream.receive_some()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("line", "status"),
    [(b"Content-Length: 9999999\r\n", b"413"), (b"Content-Length: 2\r\nOrigin: null\r\n", b"403")],
)
async def test_100_continue_is_not_sent_for_a_refused_head(line: bytes, status: bytes) -> None:
    async with serving() as server, server.client() as client:
        await client.send(POST + b"Expect: 100-continue\r\n" + line + b"\r\n")
        assert (await client.rest()).startswith(b"HTTP/1.1 " + status)


async def test_client_can_read_the_refusal_of_its_upload() -> None:
    async with serving() as server, server.client() as client:
        await client.send(POST + b"Content-Length: 99999999\r\n\r\n" + b"a" * 400_000)
        assert (await client.answer())[0].status_code == 413


async def test_failed_handler_is_logged_and_the_server_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server, server.client() as client:
        await client.send(b"GET /broken HTTP/1.1\r\n" + HOST + b"\r\n")
        response, body = await client.answer()
        assert response.status_code == 500
        assert b"as a test" not in body
        assert "RuntimeError: as a test" in caplog.text
        assert await client.is_served()


async def test_log_of_a_failed_handler_contains_only_the_route_pattern(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server, server.client() as client:
        await client.send(b"GET /source/s3cret HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await client.answer())[0].status_code == 500
        assert "GET /source/{name}" in caplog.text and "s3cret" not in caplog.text


async def test_unsendable_response_is_logged_and_the_server_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def unsendable(request: Request) -> Response:
        if request.path == "/":
            return Response(200)
        return Response(200, headers=(("X", "a\r\nSet-Cookie: b"),))

    async with serving(unsendable) as server:
        async with server.client() as client:
            await client.send(b"GET /bad HTTP/1.1\r\n" + HOST + b"\r\n")
            assert await client.rest() == b""
        assert "LocalProtocolError" in caplog.text
        async with server.client() as client:
            assert await client.is_served()


async def test_problem_response_contains_its_faults_and_headers() -> None:
    async def refuse(request: Request) -> Response:
        faults = [("must be an integer", "/id"), ("is unknown", "/colapseKey")]
        raise Problem(429, "slow down", errors=faults, headers=(("Retry-After", "7"),))

    async with serving(refuse) as server, server.client() as client:
        await client.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        response, body = await client.answer()
        assert header(response, "retry-after") == "7"
        assert json.loads(body) == {
            "title": "Too Many Requests",
            "status": 429,
            "detail": "slow down",
            "errors": [
                {"detail": "must be an integer", "pointer": "/id"},
                {"detail": "is unknown", "pointer": "/colapseKey"},
            ],
        }


async def test_long_list_of_faults_is_truncated_with_a_count() -> None:
    async def refuse(request: Request) -> Response:
        raise Problem(422, errors=[("is unknown", f"/{number}") for number in range(90_000)])

    async with serving(refuse) as server, server.client() as client:
        await client.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        errors = json.loads((await client.answer())[1])["errors"]
        assert [fault["pointer"] for fault in errors] == [*(f"/{n}" for n in range(20)), ""]
        assert errors[-1]["detail"] == "and 89980 more"


async def test_client_disconnect_does_not_cancel_the_handler() -> None:
    begun, release, finished = trio.Event(), trio.Event(), trio.Event()

    async def slow(request: Request) -> Response:
        begun.set()
        await release.wait()
        finished.set()
        return make_json_response({})

    async with serving(slow) as server:
        async with server.client() as client:
            await client.send(POST + b"Content-Length: 2\r\n\r\n{}")
            await begun.wait()
        release.set()
        await finished.wait()


async def test_half_closed_client_still_gets_its_answer() -> None:
    async with serving() as server, server.client() as client:
        await client.send(POST + b"Content-Length: 2\r\n\r\n{}")
        await client.stream.send_eof()
        assert (await client.answer())[0].status_code == 200
        assert await client.rest() == b""


async def test_stream_chunks_are_sent_immediately() -> None:
    ticks = Ticks(count=2)
    async with serving(ticks) as server, server.client() as client:
        await client.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        received = b""
        while b"data: 1" not in received:
            received += await client.stream.receive_some()
        ticks.more.set()
        received += await client.rest()
        assert received.count(b"data: 1\n\n") == 2
        assert received.endswith(b"0\r\n\r\n")
        assert b"transfer-encoding: chunked" in received.lower()


async def test_stream_to_http_1_0_ends_with_the_connection() -> None:
    ticks = Ticks(count=1)
    ticks.more.set()
    async with serving(ticks) as server, server.client() as client:
        await client.send(b"GET / HTTP/1.0\r\n" + HOST + b"\r\n")
        assert (await client.rest()).endswith(b"\r\n\r\ndata: 1\n\n")


async def test_head_request_for_a_stream_gets_its_headers() -> None:
    async with serving(Ticks()) as server, server.client() as client:
        await client.send(b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\n")
        response, body = await client.answer("HEAD")
        assert (header(response, "content-type"), body) == ("text/event-stream", b"")


async def test_stream_is_closed_when_its_reader_disconnects() -> None:
    ticks = Ticks()
    async with serving(ticks) as server:
        async with server.client() as client:
            await client.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
            await client.stream.receive_some()
        await ticks.closed.wait()


async def test_failed_stream_is_recognisable_as_truncated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        raise RuntimeError("as a test")

    async def answer(request: Request) -> Response:
        return Response(200, stream=pieces)

    async with serving(answer) as server, server.client() as client:
        await client.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await client.rest()).endswith(b"3\r\none\r\n")
        assert "RuntimeError: as a test" in caplog.text


async def test_server_without_the_loopback_guard_accepts_any_host() -> None:
    async with serving(guarded=False) as server, server.client() as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: hub.example\r\nOrigin: http://a\r\n\r\n")
        assert (await client.answer())[0].status_code == 200


async def test_responses_have_a_valid_date_header() -> None:
    async with serving() as server, server.client() as client:
        await client.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        response, _ = await client.answer()
    date = header(response, "date") or ""
    then = parsedate_to_datetime(date)
    assert format_datetime(then, usegmt=True) == date
    assert abs(datetime.now(UTC) - then) < timedelta(minutes=2)


async def test_memory_channel_is_streamed_and_closed() -> None:
    feed, pieces = trio.open_memory_channel[bytes](2)

    async def answer(request: Request) -> Response:
        return Response(200, content_type="text/event-stream", stream=lambda: pieces)

    async with serving(answer) as server:
        async with server.client() as client:
            await client.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
            await feed.send(b"data: 1\n\n")
            await client.stream.receive_some()
        with pytest.raises(trio.BrokenResourceError):
            while True:
                await feed.send(b"data: 2\n\n")


@pytest.mark.parametrize(
    "line, shown",
    [(b"it's a: c", "it's a: c"), (b'"a": c', '"a": c'), (b"a\xff: c", "a\\xff: c")],
)
async def test_refused_header_line_is_quoted_in_the_error(line: bytes, shown: str) -> None:
    async with serving() as server, server.client() as client:
        await client.send(b"GET / HTTP/1.1\r\n" + HOST + line + b"\r\n\r\n")
        answer, body = await client.answer()
        assert answer.status_code == 400
        assert json.loads(body)["detail"] == f"illegal header line: {shown}"
