"""Connections that change their protocol, and connections with TLS."""

from __future__ import annotations

import errno
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import trustme

from fieldagent.http.limits import Limits
from fieldagent.http.listeners import get_port, open_listeners
from fieldagent.http.message import Handler, Request, Response
from fieldagent.http.routes import make_router
from fieldagent.http.server import serve
from tests.http.serving import HOST, ROUTES, Client, Served, anybody, header, serving
from tests.machine import tool
from tests.processes import until_async

SWITCH = b"GET /echo HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: echo\r\n\r\n"
HEADERS = (("connection", "upgrade"), ("upgrade", "echo"))


class Echo:
    """An upgrade that returns its data, and records the result."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = trio.Event()

    async def __call__(self, request: Request) -> Response:
        return Response(101, headers=HEADERS, upgrade=self._echo)

    async def _echo(self, stream: trio.abc.Stream) -> None:
        self.begun += 1
        try:
            while data := await stream.receive_some():
                await stream.send_all(data)
        finally:
            self.ended.set()


async def switch_protocol(client: Client, *, ahead: bytes = b"") -> None:
    await client.send(SWITCH + ahead)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        octet = await client.stream.receive_some(1)
        assert octet, head
        head += octet
    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"\r\nupgrade: echo\r\n" in head
    assert b"content-length" not in head
    assert b"close" not in head


async def receive_exactly(client: Client, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = await client.stream.receive_some()
        assert more, data
        data += more
    return data


async def test_upgraded_connection_transfers_bytes_both_ways() -> None:
    async with serving(Echo()) as server, server.client() as client:
        await switch_protocol(client, ahead=b"ahead ")
        await client.stream.send_all(b"of time")
        assert await receive_exactly(client, 13) == b"ahead of time"


async def test_end_of_the_upgrade_closes_the_connection() -> None:
    echo = Echo()
    async with serving(echo) as server, server.client() as client:
        await switch_protocol(client)
        await client.stream.send_eof()
        assert await client.rest() == b""
        assert echo.ended.is_set()


@pytest.mark.parametrize("version, heard", [(b"1.0", b"nothing"), (b"1.1", b"echo")])
async def test_upgrade_header_of_http_1_0_is_ignored(version: bytes, heard: bytes) -> None:
    async def tell(request: Request) -> Response:
        return Response(200, request.headers.get("upgrade", "nothing").encode(), "text/plain")

    async with serving(tell) as server, server.client() as client:
        await client.send(SWITCH.replace(b"HTTP/1.1", b"HTTP/" + version))
        answer, body = await client.answer()
        assert (answer.status_code, body) == (200, heard)


async def test_stopping_server_ends_an_upgrade_at_once(clock: Any) -> None:
    echo = Echo()
    async with serving(echo) as server, server.client() as client:
        await switch_protocol(client)
        began = trio.current_time()
        server.stopping.set()
        assert await client.rest() == b""
        assert trio.current_time() - began < 1
        assert echo.ended.is_set()


async def test_failed_upgrade_is_logged_and_closes_only_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(stream: trio.abc.Stream) -> None:
        raise RuntimeError("as a test")

    async def handler(request: Request) -> Response:
        upgrade = broken if request.path == "/echo" else None
        return Response(101 if upgrade else 204, headers=HEADERS, upgrade=upgrade)

    async with serving(handler) as server:
        async with server.client() as client:
            await switch_protocol(client)
            assert await client.rest() == b""
        async with server.client() as client:
            await client.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
            assert (await client.answer())[0].status_code == 204
    assert "a connection failed: RuntimeError: as a test" in caplog.text


async def test_reset_by_the_peer_raises_a_broken_resource_error() -> None:
    said: list[BaseException] = []

    async def wait(stream: trio.abc.Stream) -> None:
        try:
            while True:
                await stream.send_all(bytes(65_536))
        except trio.BrokenResourceError as error:
            said.append(error)

    async def handler(request: Request) -> Response:
        return Response(101, headers=HEADERS, upgrade=wait)

    async with serving(handler) as server:
        async with server.client() as client:
            await client.send(SWITCH)
            await client.stream.receive_some()
            linger = b"\1\0\0\0\0\0\0\0"
            client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        await until_async(lambda: said)
    cause = said[0].__cause__
    assert isinstance(cause, OSError)
    assert cause.errno in (errno.ECONNRESET, errno.EPIPE)


async def test_upgraded_connections_are_not_evicted_and_new_ones_get_503() -> None:
    echo = Echo()
    async with (
        serving(echo, Limits(connections=2)) as server,
        server.client() as one,
        server.client() as two,
    ):
        await switch_protocol(one)
        await switch_protocol(two)
        async with server.client() as three:
            answer, _ = await three.answer()
            assert answer.status_code == 503
            assert header(answer, "retry-after") == "1"
        await one.stream.send_all(b"still here")
        assert await receive_exactly(one, 10) == b"still here"
    assert echo.begun == 2


# TLS.

CA = trustme.CA()
CERTIFICATE = CA.issue_cert("localhost", "127.0.0.1", "::1")


@asynccontextmanager
async def serving_tls(
    handler: Handler | None = None, limits: Limits | None = None
) -> AsyncIterator[Served]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CERTIFICATE.configure_cert(context)
    listeners = open_listeners(0)
    port, stopping = get_port(listeners), trio.Event()
    run = partial(
        serve,
        make_router(ROUTES) if handler is None else anybody(handler),
        listeners,
        stop_event=stopping,
        limits=limits or Limits(),
        tls=context,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        yield Served(port, stopping)
        stopping.set()


@asynccontextmanager
async def tls_client(server: Served, **how: Any) -> AsyncIterator[Client]:
    context = ssl.create_default_context()
    CA.configure_trust(context)
    for name, value in how.items():
        setattr(context, name, value)
    plain = await trio.open_tcp_stream("127.0.0.1", server.port)
    stream = trio.SSLStream(plain, context, server_hostname="localhost", https_compatible=True)
    async with stream:
        await stream.do_handshake()
        yield Client(stream, server.port)  # type: ignore[arg-type]


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("version", VERSIONS)
async def test_requests_are_served_over_tls(version: ssl.TLSVersion) -> None:
    async with serving_tls() as server, tls_client(server, maximum_version=version) as client:
        assert await client.is_served()
        assert await client.is_served()


async def test_pipeline_and_large_body_are_served_over_tls() -> None:
    body = b"x" * 900_000
    head = b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
    get = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
    async with (
        serving_tls() as server,
        tls_client(server) as client,
        trio.open_nursery() as nursery,
    ):
        post = head + b"Content-Length: 900000\r\n\r\n" + body
        nursery.start_soon(client.send, get + get + post + get)
        assert (await client.answer())[0].status_code == 200
        assert (await client.answer())[0].status_code == 200
        assert body in (await client.answer())[1]
        assert (await client.answer())[0].status_code == 200


@pytest.mark.parametrize("size", [1, 6, 300, 65_536])
async def test_tls_records_are_read_in_any_segmentation(size: int) -> None:
    """The records are the end of the handshake and two requests: in small parts, or all at once."""
    context = ssl.create_default_context()
    CA.configure_trust(context)
    arrived, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(arrived, leaving, server_hostname="localhost")
    async with serving_tls() as server, server.client() as client:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await client.stream.send_all(leaving.read())
                arrived.write(await client.stream.receive_some())
        for _ in range(2):
            tls.write(b"GET / HTTP/1.1\r\n" + HOST)
            tls.write(b"\r\n")
        ciphertext = leaving.read()
        for start in range(0, len(ciphertext), size):
            await client.stream.send_all(ciphertext[start : start + size])
            await trio.testing.wait_all_tasks_blocked()
        answers = b""
        while answers.count(b"HTTP/1.1 200") < 2:
            try:
                answers += tls.read()
            except ssl.SSLWantReadError:
                arrived.write(await client.stream.receive_some())


async def test_slow_reader_gets_a_large_answer_over_tls() -> None:
    answer = bytes(range(256)) * 40_000

    async def large(request: Request) -> Response:
        return Response(200, answer, content_type="application/octet-stream")

    async with serving_tls(large) as server, tls_client(server) as client:
        await client.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert (await client.answer())[1] == answer


async def test_upgrade_works_over_tls() -> None:
    async with (
        serving_tls(Echo()) as server,
        tls_client(server) as client,
        trio.open_nursery() as nursery,
    ):
        await switch_protocol(client, ahead=b"ahead ")
        data = bytes(range(256)) * 2_000
        nursery.start_soon(client.stream.send_all, data)
        assert await receive_exactly(client, 6 + len(data)) == b"ahead " + data


async def test_stopping_server_sends_a_tls_close_notify() -> None:
    """With close_notify the peer knows that nothing was cut off."""
    context = ssl.create_default_context()
    CA.configure_trust(context)
    async with serving_tls(Echo()) as server:
        plain = await trio.open_tcp_stream("127.0.0.1", server.port)
        stream = trio.SSLStream(plain, context, server_hostname="localhost")
        await stream.do_handshake()
        await switch_protocol(Client(stream, server.port))  # type: ignore[arg-type]
        server.stopping.set()
        assert await stream.receive_some() == b""
        await trio.aclose_forcefully(stream)


async def test_unfinished_handshake_is_closed_at_its_deadline(clock: Any) -> None:
    limits = Limits(head_deadline=7)
    async with serving_tls(limits=limits) as server, server.client() as client:
        began = trio.current_time()
        await client.stream.send_all(b"\x16\x03\x01\x02\x00\x01")
        assert await client.rest() == b""
        assert 6 < trio.current_time() - began < 9


async def test_unfinished_handshake_is_evicted_first() -> None:
    async with (
        serving_tls(limits=Limits(connections=3)) as server,
        server.client() as one,
        server.client(),
        server.client(),
    ):
        async with tls_client(server) as honest:
            assert await honest.is_served()
        assert await one.rest() == b""


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x00\x05hello", bytes(600), b""]
)
async def test_invalid_tls_is_closed_and_the_server_continues(sent: bytes) -> None:
    async with serving_tls() as server:
        async with server.client() as client:
            await client.stream.send_all(sent)
            with suppress(trio.BrokenResourceError):
                await client.stream.send_eof()
            await client.rest()
        async with tls_client(server) as client:
            assert await client.is_served()


async def test_reset_before_the_handshake_does_not_harm_others() -> None:
    async with serving_tls() as server:
        for _ in range(20):
            async with server.client() as client:
                linger = b"\1\0\0\0\0\0\0\0"
                client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                await client.stream.send_all(b"GET")
        async with tls_client(server) as client:
            assert await client.is_served()


async def test_curl_accepts_the_tls_server(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    CA.cert_pem.write_to_path(str(ca))
    async with serving_tls() as server:
        url = f"https://localhost:{server.port}/named/curl"
        command = [tool("curl", "curl"), "-sS", "--fail", "--cacert", str(ca), url, url]
        done = await trio.run_process(command, capture_stdout=True, stderr=subprocess.STDOUT)
        assert done.stdout == b'{"name":"curl"}\n' * 2
