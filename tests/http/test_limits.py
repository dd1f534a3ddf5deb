"""Slow, many and unfinished peers in virtual time, and the end of the server."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import pytest
import trio
import trio.testing

from fieldagent.http.limits import Limits
from fieldagent.http.listeners import get_port, open_listeners
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.routes import make_router
from fieldagent.http.server import CHECK_INTERVAL_S, serve
from tests.http.serving import (
    HOST,
    JSON,
    PACE,
    ROUTES,
    Client,
    Served,
    Ticks,
    drip,
    header,
    serving,
)

GET = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
POST = b"POST /echo HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 99\r\n\r\n"
FEW = Limits(connections=4)


class Gate:
    """A handler that answers when a test opens it."""

    def __init__(self) -> None:
        self.begun = 0
        self.opened = trio.Event()

    async def __call__(self, request: Request) -> Response:
        self.begun += 1
        await self.opened.wait()
        return make_json_response({})

    async def has_begun(self, count: int) -> None:
        while self.begun < count:
            await trio.testing.wait_all_tasks_blocked(0.01)


@pytest.mark.parametrize(
    ("before", "slow", "deadline"),
    [(b"", b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 99, 10), (POST, b" " * 99, 30)],
    ids=["head", "body"],
)
async def test_slow_request_is_refused_at_a_total_deadline(
    clock: trio.testing.MockClock, before: bytes, slow: bytes, deadline: int
) -> None:
    limits = Limits(head_deadline=10, body_deadline=30)
    async with serving(limits=limits) as server, server.client() as client:
        await client.send(before)
        assert await drip(client, slow) <= deadline / PACE + 1
        assert (await client.answer())[0].status_code == 408
        assert await client.rest() == b""


async def test_idle_connection_is_closed_silently(clock: trio.testing.MockClock) -> None:
    async with serving() as server:
        async with server.client() as fresh:
            assert await fresh.rest() == b""
        async with server.client() as used:
            assert await used.is_served()
            assert await used.rest() == b""


async def test_blank_lines_do_not_keep_a_connection_open(clock: trio.testing.MockClock) -> None:
    async with serving(limits=Limits(idle_deadline=20)) as server, server.client() as client:
        assert await drip(client, b"\r\n" * 99) <= 20 / PACE + 1


@pytest.mark.full
async def test_slow_handler_is_not_interrupted(clock: trio.testing.MockClock) -> None:
    async def slow(request: Request) -> Response:
        await trio.sleep(3600)
        return make_json_response({})

    async with serving(slow) as server, server.client() as client:
        await client.send(GET)
        assert (await client.answer())[0].status_code == 200


@pytest.mark.parametrize("streamed", [False, True])
async def test_client_that_does_not_read_is_disconnected(
    clock: trio.testing.MockClock, streamed: bool
) -> None:
    size = 50_000_000
    ticks = Ticks(1, b"a" * size)

    async def large(request: Request) -> Response:
        return Response(200, b"a" * size)

    async with serving(ticks if streamed else large) as server, server.client() as client:
        await client.send(GET)
        await trio.sleep(40)
        assert len(await client.rest()) < size
        if streamed:
            assert ticks.closed.is_set()


async def test_slow_reader_within_the_deadline_gets_everything(
    clock: trio.testing.MockClock,
) -> None:
    async def large(request: Request) -> Response:
        return Response(200, b"a" * 20_000_000)

    async with serving(large) as server, server.client() as client:
        await client.send(GET)
        await trio.sleep(20)
        assert len((await client.answer())[1]) == 20_000_000


async def send_from_all(clients: list[Client], data: bytes) -> None:
    for client in clients:
        await client.send(data)
    await trio.testing.wait_all_tasks_blocked(0.02)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHo", POST], ids=["none", "head", "body"])
async def test_client_is_served_despite_a_crowd_of_slow_ones(sent: bytes) -> None:
    async with serving(limits=FEW) as server, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(server.client()) for _ in range(12)]
        await send_from_all(clients, sent)
        async with server.client() as honest:
            assert await honest.is_served()
        answers = [await client.rest() for client in clients[:8]]
        assert all(answer == b"" or b" 503 " in answer for answer in answers)


async def test_oldest_incomplete_request_is_evicted_before_idle_connections() -> None:
    async with serving(limits=FEW) as server, AsyncExitStack() as stack:
        idle, older, newer, also_idle = [
            await stack.enter_async_context(server.client()) for _ in range(4)
        ]
        assert await idle.is_served()
        assert await also_idle.is_served()
        for slow in (older, newer):
            await send_from_all([slow], b"GET / HT")
        async with server.client() as honest:
            assert await honest.is_served()
            assert (await older.answer())[0].status_code == 503
            assert await idle.is_served()
            assert await also_idle.is_served()
            await newer.send(b"TP/1.1\r\n" + HOST + b"\r\n")
            assert (await newer.answer())[0].status_code == 200


async def test_longest_idle_connection_is_evicted_before_pending_requests() -> None:
    gate = Gate()
    async with serving(gate, FEW) as server, AsyncExitStack() as stack:
        waiting = [await stack.enter_async_context(server.client()) for _ in range(3)]
        await send_from_all(waiting, GET)
        await gate.has_begun(3)
        idle = await stack.enter_async_context(server.client())
        await trio.testing.wait_all_tasks_blocked(0.02)
        late = await stack.enter_async_context(server.client())
        await late.send(GET)
        assert await idle.rest() == b""
        gate.opened.set()
        for client in (*waiting, late):
            assert (await client.answer())[0].status_code == 200


async def test_new_connection_gets_503_if_all_others_wait_for_answers() -> None:
    gate = Gate()
    async with serving(gate, FEW) as server, AsyncExitStack() as stack:
        waiting = [await stack.enter_async_context(server.client()) for _ in range(4)]
        await send_from_all(waiting, GET)
        await gate.has_begun(4)
        for _ in range(6):
            refused = await stack.enter_async_context(server.client())
            response, _ = await refused.answer()
            assert (response.status_code, header(response, "retry-after")) == (503, "1")
        gate.opened.set()
        for client in waiting:
            assert (await client.answer())[0].status_code == 200
        assert await waiting[0].is_served()


async def test_disconnected_clients_free_their_slots_and_half_closed_do_not(
    clock: trio.testing.MockClock,
) -> None:
    gate = Gate()
    async with serving(gate, FEW) as server, AsyncExitStack() as stack:
        waiting = [await stack.enter_async_context(server.client()) for _ in range(4)]
        await send_from_all(waiting, GET)
        await gate.has_begun(4)
        for gone in waiting[:2]:
            at_once = struct.pack("ii", 1, 0)
            gone.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
            await gone.stream.aclose()
        for listening in waiting[2:]:
            await listening.stream.send_eof()
        await trio.sleep(3 * CHECK_INTERVAL_S)
        more = [await stack.enter_async_context(server.client()) for _ in range(2)]
        await send_from_all(more, GET)
        await gate.has_begun(6)
        gate.opened.set()
        for client in (*waiting[2:], *more):
            assert (await client.answer())[0].status_code == 200


@pytest.mark.parametrize("pieces", [1, 2], ids=["at once", "in two"])
@pytest.mark.parametrize("limits", [FEW, Limits(connections=100, per_source=4)], ids=["all", "one"])
async def test_every_client_of_a_crowd_is_served_or_gets_503(limits: Limits, pieces: int) -> None:
    served = 0

    async def slow(request: Request) -> Response:
        nonlocal served
        await trio.lowlevel.checkpoint()
        served += 1
        return make_json_response({})

    whole = POST.replace(b"99", b"2") + b"{}"
    statuses: list[tuple[int, str | None]] = []

    async def call(server: Served) -> None:
        async with server.client() as client:
            for part in (whole,) if pieces == 1 else (whole[:-2], whole[-2:]):
                await client.send(part)
                await trio.lowlevel.checkpoint()
            answer, _ = await client.answer("POST")
            statuses.append((answer.status_code, header(answer, "retry-after")))

    async with serving(slow, limits) as server, trio.open_nursery() as callers:
        for _ in range(200):
            callers.start_soon(call, server)
    assert set(statuses) <= {(200, None), (503, "1")}
    assert statuses.count((200, None)) == served >= 4


async def test_number_of_closing_503_connections_is_limited() -> None:
    gate = Gate()
    limits = Limits(connections=1, leaving_max=3)
    async with serving(gate, limits) as server, AsyncExitStack() as stack:
        (waiting,) = [await stack.enter_async_context(server.client())]
        await send_from_all([waiting], GET)
        await gate.has_begun(1)
        refused = [await stack.enter_async_context(server.client()) for _ in range(9)]
        await send_from_all(refused, GET)
        # All have their answers, and the oldest were closed for that.
        for client in refused:
            assert (await client.answer())[0].status_code == 503
        for client in refused[:6]:
            assert await client.rest() == b""
        gate.opened.set()
        assert (await waiting.answer())[0].status_code == 200


async def test_stream_is_evicted_if_only_streams_are_open() -> None:
    async with serving(Ticks(), Limits(connections=2)) as server, AsyncExitStack() as stack:
        readers = []
        for _ in range(3):
            reader = await stack.enter_async_context(server.client())
            readers.append(reader)
            await reader.send(GET)
            await reader.stream.receive_some()
        assert (await readers[0].rest()).endswith(b"0\r\n\r\n")


FEW_OF_ONE = Limits(connections=100, per_source=3)


async def test_connections_of_one_source_are_limited() -> None:
    async with serving(limits=FEW_OF_ONE) as server, AsyncExitStack() as stack:
        others = await stack.enter_async_context(server.client("127.0.0.2"))
        assert await others.is_served()
        clients = [await stack.enter_async_context(server.client()) for _ in range(9)]
        for client in clients[:6]:
            assert await client.rest() == b""
        for client in (*clients[6:], others):
            assert await client.is_served()


async def test_source_with_only_pending_requests_gets_503() -> None:
    gate = Gate()
    async with serving(gate, FEW_OF_ONE) as server, AsyncExitStack() as stack:
        waiting = [await stack.enter_async_context(server.client()) for _ in range(3)]
        await send_from_all(waiting, GET)
        await gate.has_begun(3)
        async with server.client() as refused:
            assert (await refused.answer())[0].status_code == 503
        async with server.client("127.0.0.2") as other:
            await other.send(GET)
            await gate.has_begun(4)
            gate.opened.set()
            assert (await other.answer())[0].status_code == 200
        for client in waiting:
            assert (await client.answer())[0].status_code == 200


async def test_trusted_proxy_is_exempt_from_the_source_limit() -> None:
    limits = replace(FEW_OF_ONE, proxies=(ipaddress.IPv4Network("127.0.0.0/30"),))
    async with serving(limits=limits) as server, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(server.client()) for _ in range(9)]
        for client in clients:
            assert await client.is_served()


UPLOAD = b"POST /echo HTTP/1.1\r\n" + HOST + JSON + b"Expect: 100-continue\r\n"
EIGHT = b"Content-Length: 800\r\n\r\n"


async def test_request_bodies_share_a_memory_limit() -> None:
    async with serving(limits=Limits(bodies=1_000)) as server, AsyncExitStack() as stack:
        first = await stack.enter_async_context(server.client())
        await first.send(UPLOAD + EIGHT)
        assert b" 100 " in await first.stream.receive_some()
        for framing in (EIGHT, b"Transfer-Encoding: chunked\r\n\r\n"):
            async with server.client() as second:
                await second.send(UPLOAD + framing)
                response, _ = await second.answer()
                assert (response.status_code, header(response, "retry-after")) == (503, "1")
        async with server.client() as small:
            await small.send(UPLOAD + b"Content-Length: 200\r\n\r\n" + b" " * 200)
            assert (await small.answer())[0].status_code == 200
        await first.send(b" " * 800)
        assert (await first.answer())[0].status_code == 200
        async with server.client() as third:
            await third.send(UPLOAD + EIGHT + b" " * 800)
            assert (await third.answer())[0].status_code == 200


async def test_body_counts_against_the_memory_limit_until_answered() -> None:
    gate = Gate()
    limits = Limits(bodies=1_048_576)
    async with serving(gate, limits) as server, server.client() as pending:
        chunked = b"Transfer-Encoding: chunked\r\n\r\n320\r\n" + b" " * 800 + b"\r\n0\r\n\r\n"
        await pending.send(UPLOAD + chunked)
        await gate.has_begun(1)
        async with server.client() as refused:
            await refused.send(UPLOAD + b"Content-Length: 1048000\r\n\r\n")
            assert (await refused.answer())[0].status_code == 503
        async with server.client() as fits:
            await fits.send(UPLOAD + b"Content-Length: 1047000\r\n\r\n")
            assert b" 100 " in await fits.stream.receive_some()
        gate.opened.set()
        assert (await pending.answer())[0].status_code == 200


async def test_stopping_server_answers_pending_requests() -> None:
    gate = Gate()
    async with serving(gate) as server, server.client() as pending, server.client() as idle:
        await pending.send(GET)
        await gate.has_begun(1)
        server.stopping.set()
        assert await idle.rest() == b""
        with pytest.raises(OSError, match="all attempts"):
            await trio.open_tcp_stream("127.0.0.1", server.port)
        gate.opened.set()
        response, _ = await pending.answer()
        assert (response.status_code, header(response, "connection")) == (200, "close")
        assert await pending.rest() == b""


async def test_stopping_server_accepts_the_rest_of_a_started_request() -> None:
    async with serving() as server, server.client() as client:
        await client.send(b"GET / HTTP/1.1\r\nHo")
        await trio.testing.wait_all_tasks_blocked(0.02)
        server.stopping.set()
        await client.send(b"st: localhost:PORT\r\n\r\n")
        assert (await client.answer())[0].status_code == 200
        assert await client.rest() == b""


async def test_stopping_server_ends_streams_properly() -> None:
    ticks = Ticks()
    async with serving(ticks) as server, server.client() as client:
        await client.send(GET)
        await client.stream.receive_some()
        server.stopping.set()
        assert (await client.rest()).endswith(b"0\r\n\r\n")
        assert ticks.closed.is_set()


async def test_stopping_server_waits_at_most_its_grace_period(
    clock: trio.testing.MockClock,
) -> None:
    async with serving(Gate(), Limits(grace=5)) as server, server.client() as client:
        await client.send(GET)
        await trio.sleep(1)
        server.stopping.set()
        assert await client.rest() == b""
        assert trio.current_time() < 60


async def test_complete_request_at_its_deadline_is_answered(
    clock: trio.testing.MockClock,
) -> None:
    async def slow(request: Request) -> Response:
        await trio.sleep(1)
        return make_json_response({})

    async with serving(slow) as server, server.client() as client:
        await trio.testing.wait_all_tasks_blocked(0.02)
        clock.jump(3600)
        os.write(client.stream.socket.fileno(), client.filled(GET))
        assert (await client.answer())[0].status_code == 200


class Refusing(socket.socket):
    """A listener that fails to accept its first connections."""

    faults: ClassVar[list[int]] = []

    def accept(self) -> tuple[socket.socket, Any]:
        if self.faults:
            raise OSError(self.faults.pop(), "as a test")
        return super().accept()


@pytest.mark.parametrize("fault", [errno.EMFILE, errno.ENFILE, errno.ECONNABORTED, errno.EAGAIN])
async def test_failed_accept_does_not_stop_the_server(
    clock: trio.testing.MockClock, fault: int
) -> None:
    (listener,) = open_listeners(0, ("127.0.0.1",))
    port, refusing = get_port([listener]), Refusing(fileno=listener.detach())
    Refusing.faults = [fault] * 3
    stopping = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve, make_router(ROUTES), [refusing], stop_event=stopping))
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            assert await Client(stream, port).is_served()
        stopping.set()
    assert Refusing.faults == []


@pytest.mark.full
async def test_streams_end_properly_if_stopped_within_a_chunk(
    clock: trio.testing.MockClock,
) -> None:
    async with serving(Ticks(piece=b"a" * 30_000_000)) as server, AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(server.client()) for _ in range(3)]
        await send_from_all(readers, GET)
        server.stopping.set()
        for reader in readers:
            assert (await reader.rest()).endswith(b"\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("error", "tracebacks"), [(ValueError("as a test"), 1), (OSError(22, "x"), 0)]
)
async def test_failed_connection_setup_does_not_block_others(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    tracebacks: int,
) -> None:
    def fails(*_: object) -> bool:
        raise error

    async with serving() as server:
        with monkeypatch.context() as broken:
            broken.setattr("fieldagent.http.server._Server._make_room", fails)
            async with server.client() as client:
                assert await client.rest() == b""
        async with server.client() as client:
            assert await client.is_served()
    assert len([record for record in caplog.records if record.exc_info]) == tracebacks
