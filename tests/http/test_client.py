"""The client with the standard library's server, with TLS, and with faulty servers."""

from __future__ import annotations

import base64
import http.server
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.http.client import KeptConnections, Reply, RequestFailed, request
from fieldagent.http.listeners import get_port, open_listeners
from tests.machine import tool

DEADLINE = 15.0
UNTRUSTED = "^the certificate is not trusted: "


class Hook(http.server.BaseHTTPRequestHandler):
    """Returns the request's body. `/large`, `/moved` and `/empty` act as their names say."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        echo = f"{self.path} {self.headers['Host']} {self.headers['Authorization']} "
        answers = {"/large": b"a" * 200_000, "/moved": b"", "/empty": b""}
        answer = answers.get(self.path, echo.encode() + body)
        self.send_response({"/moved": 302, "/empty": 204}.get(self.path, 200))
        self.send_header("Location", "/elsewhere")
        self.send_header("X-Many", "1")
        self.send_header("X-Many", "2")
        if self.path != "/empty":
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass


@contextmanager
def hook_server(context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Run a server with `Hook` and yield its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if context is not None:
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def post(url: str, body: bytes = b"{}", **options: Any) -> Reply:
    return await request("POST", url, body=body, deadline=DEADLINE, **options)


async def test_post_reaches_the_server_and_returns_its_reply() -> None:
    with hook_server() as port:
        reply = await post(f"http://127.0.0.1:{port}/a%20b?c=é", b'{"d":1}')
    assert reply.status == 200
    assert reply.body.decode() == f'/a%20b?c=%C3%A9 127.0.0.1:{port} None {{"d":1}}'
    assert reply.headers["x-many"] == "1, 2"


async def test_credentials_in_the_url_become_basic_authentication() -> None:
    with hook_server() as port:
        reply = await post(f"http://us%40er:pa:ss@127.0.0.1:{port}/")
    assert base64.b64encode(b"us@er:pa:ss") in reply.body
    assert b"/ 127.0.0.1" in reply.body


@pytest.mark.parametrize(("path", "status"), [("moved", 302), ("empty", 204)])
async def test_any_status_is_returned_and_redirects_are_not_followed(
    path: str, status: int
) -> None:
    with hook_server() as port:
        assert (await post(f"http://127.0.0.1:{port}/{path}")).status == status


async def test_large_reply_is_truncated() -> None:
    with hook_server() as port:
        reply = await post(f"http://127.0.0.1:{port}/large", max_body=1000)
    assert (reply.status, reply.body) == (200, b"a" * 1000)


@asynccontextmanager
async def answering_server(answer: bytes, *, read: bool = True) -> AsyncIterator[int]:
    """Run a server that sends `answer` to any request, and then closes unless it is empty."""
    (listener,) = open_listeners(0, ("127.0.0.1",))

    async def answer_once(stream: trio.SocketStream) -> None:
        async with stream:
            if read:
                await stream.receive_some()
            await stream.send_all(answer)
            if not answer:
                await trio.sleep_forever()

    trio_listener = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, answer_once, [trio_listener])
        yield get_port([listener])
        nursery.cancel_scope.cancel()


async def test_reply_before_the_body_is_read_is_accepted() -> None:
    refusal = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n"
    async with answering_server(refusal) as port:
        reply = await post(f"http://127.0.0.1:{port}/", b"a" * 50_000)
    assert reply.status == 413


async def test_interim_reply_is_skipped() -> None:
    async with answering_server(
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\nyes"
    ) as port:
        assert (await post(f"http://127.0.0.1:{port}/")).body == b"yes"


async def test_endless_interim_replies_are_an_error() -> None:
    """Otherwise a receiver could block its senders."""
    async with answering_server(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1_000) as port:
        with pytest.raises(RequestFailed, match="more than 32 interim answers"):
            await post(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-OpenSSH_9.2\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", b"\n"],
)
async def test_malformed_or_truncated_reply_is_an_error(answer: bytes) -> None:
    async with answering_server(answer) as port:
        with pytest.raises(RequestFailed, match="not HTTP or was cut short") as failed:
            await post(f"http://127.0.0.1:{port}/")
        assert "bytearray" not in str(failed.value)


async def test_missing_reply_is_an_error_after_the_deadline(clock: trio.testing.MockClock) -> None:
    async with answering_server(b"") as port:
        with pytest.raises(RequestFailed, match="no answer within 15 s"):
            await post(f"http://127.0.0.1:{port}/")


async def test_refused_connection_is_reported() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        with pytest.raises(RequestFailed, match=r"^connection refused$"):
            await post(f"http://127.0.0.1:{reserved.getsockname()[1]}/")


async def test_unknown_host_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    # No name server outside this machine is used.
    monkeypatch.setattr("trio._highlevel_open_tcp_stream.getaddrinfo", getaddrinfo)
    with pytest.raises(RequestFailed, match=r"^name not found: "):
        await post("http://nowhere.invalid/")


@pytest.mark.parametrize(
    "url",
    ["", "ftp://a/", "http://", "http:///a", "http://a:99999/", "http://a b/", "a.example/b",
     "http://[::1/", "http://a..b/", "http://a/\r\nX: y"],
)  # fmt: skip
async def test_invalid_url_is_reported(url: str) -> None:
    with pytest.raises(RequestFailed, match="is not a"):
        await post(url)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    openssl = tool("openssl", "openssl")
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", path, "-out", path.with_suffix(".crt")], check=True,
                   capture_output=True)  # fmt: skip
    path.write_bytes(path.read_bytes() + path.with_suffix(".crt").read_bytes())
    return path


def make_server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def test_https_request_to_a_trusted_server_succeeds(certificate: Path) -> None:
    trust = ssl.create_default_context(cafile=certificate)
    with hook_server(make_server_context(certificate)) as port:
        reply = await post(f"https://localhost:{port}/", ssl_context=trust)
    assert reply.status == 200


async def test_https_request_to_an_untrusted_server_fails(certificate: Path) -> None:
    with (
        hook_server(make_server_context(certificate)) as port,
        pytest.raises(RequestFailed, match=UNTRUSTED + "self"),
    ):
        await post(f"https://localhost:{port}/")


async def test_https_request_to_another_host_name_fails(certificate: Path) -> None:
    trust = ssl.create_default_context(cafile=certificate)
    with (
        hook_server(make_server_context(certificate)) as port,
        pytest.raises(RequestFailed, match=UNTRUSTED + ".*mismatch"),
    ):
        await post(f"https://127.0.0.1:{port}/", ssl_context=trust)


async def test_https_request_to_a_plain_server_fails() -> None:
    with hook_server() as port, pytest.raises(RequestFailed, match="does not use TLS"):
        await post(f"https://127.0.0.1:{port}/")


@asynccontextmanager
async def scripted_server(*talks: list[bytes]) -> AsyncIterator[tuple[int, list[int]]]:
    """Run a server whose connections answer one request after another from their list, and then
    close. Yield the number of requests of each too.
    """
    (listener,) = open_listeners(0, ("127.0.0.1",))
    asked: list[int] = []

    async def talk(stream: trio.SocketStream) -> None:
        mine = len(asked)
        asked.append(0)
        async with stream:
            for answer in talks[mine]:
                if not await stream.receive_some():
                    return
                asked[mine] += 1
                if answer:
                    await stream.send_all(answer)

    trio_listener = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, talk, [trio_listener])
        yield get_port([listener]), asked
        nursery.cancel_scope.cancel()


TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"
CLOSING = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 200_000
HALF = b"HTTP/1.1 200 OK\r\nContent-Len"


@pytest.mark.parametrize(
    ("talks", "asked"),
    [
        # One connection for all of them, also with an unrequested body.
        ([[TAKEN, LONG, TAKEN]], [3]),
        # It is closed between two requests.
        ([[TAKEN], [TAKEN, TAKEN]], [1, 2]),
        # It is closed instead of an answer, and the request goes again.
        ([[TAKEN, b""], [TAKEN, TAKEN]], [2, 2]),
        # A server that announces the close gets no further request on it.
        ([[CLOSING], [TAKEN, TAKEN]], [1, 2]),
        # The rest of the body is too long to read.
        ([[ENDLESS], [TAKEN, TAKEN]], [1, 2]),
    ],
)
async def test_open_connection_is_reused_for_the_next_request(
    talks: list[list[bytes]], asked: list[int]
) -> None:
    kept = KeptConnections()
    async with scripted_server(*talks) as (port, counted):
        for _ in range(3):
            reply = await post(f"http://127.0.0.1:{port}/", max_body=0, kept_connections=kept)
            assert reply.status in (200, 204)
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert counted == asked
        kept.close()


async def test_connection_is_not_reused_after_a_long_pause(clock: trio.testing.MockClock) -> None:
    """A router on the way drops an idle connection without a notice to either end."""
    kept = KeptConnections()
    async with scripted_server([TAKEN, TAKEN], [TAKEN]) as (port, counted):
        for pause, expected in ((0, [1]), (29, [2]), (31, [2, 1])):
            await trio.sleep(pause)
            await post(f"http://127.0.0.1:{port}/", kept_connections=kept)
            assert counted == expected
        kept.close()


async def test_truncated_reply_on_a_reused_connection_is_not_retried() -> None:
    kept = KeptConnections()
    async with scripted_server([TAKEN, HALF], [TAKEN]) as (port, counted):
        url = f"http://127.0.0.1:{port}/"
        await post(url, kept_connections=kept)
        with pytest.raises(RequestFailed, match="not HTTP or was cut short"):
            await post(url, kept_connections=kept)
        assert counted == [2]
        assert (await post(url, kept_connections=kept)).status == 204
        kept.close()
