"""A server under test on a free loopback port, and a client that sends raw bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import h11
import trio

from fieldagent.http.guard import check_loopback_caller, get_required_body
from fieldagent.http.limits import Limits
from fieldagent.http.listeners import get_port, open_listeners
from fieldagent.http.message import (
    FORM,
    Admission,
    Guard,
    Handler,
    Judge,
    Request,
    Response,
    make_json_response,
)
from fieldagent.http.protocol import MissingPart, ServerProtocol
from fieldagent.http.routes import Route, make_router
from fieldagent.http.server import serve

HOST = b"Host: localhost:PORT\r\n"
JSON = b"Content-Type: application/json\r\n"


async def echo(request: Request) -> Response:
    body = get_required_body(request).decode("latin-1")
    return make_json_response({"path": request.path, "body": body})


async def hello(request: Request) -> Response:
    return make_json_response({"hello": dict(request.query)})


async def named(request: Request, name: str) -> Response:
    return make_json_response({"name": name})


async def broken(request: Request) -> Response:
    raise RuntimeError("as a test")


async def broken_of(request: Request, name: str) -> Response:
    raise RuntimeError("as a test")


ROUTES = [
    Route("GET", "/", hello),
    Route("POST", "/echo", echo),
    Route("GET", "/named/{name}", named),
    Route("GET", "/named/first", hello),
    Route("DELETE", "/named/{name}", named),
    Route("GET", "/broken", broken),
    Route("GET", "/source/{name}", broken_of),
]


def anybody(handler: Handler) -> Judge:
    """Return a judge that admits all callers, with JSON and forms."""

    async def judge(head: Request) -> Admission:
        return Admission(handler, media_types=(FORM,))

    return judge


class Requests:
    """Reads complete requests from a protocol, and admits all callers."""

    def __init__(self, limits: Limits) -> None:
        self.protocol = ServerProtocol(limits)
        self._in_body = False

    def next(self) -> Request | MissingPart:
        if not self._in_body:
            head = self.protocol.next_head()
            if isinstance(head, MissingPart):
                return head
            self.protocol.admit(Admission(echo))
        request = self.protocol.next_body()
        self._in_body = request is MissingPart.BODY
        return request


class Client:
    """One connection. `PORT` in sent bytes is replaced by the server's port."""

    def __init__(self, stream: trio.SocketStream, port: int) -> None:
        self.stream = stream
        self.port = port
        self._buffer = bytearray()
        self._ended = False

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(self.filled(data))

    def filled(self, data: bytes) -> bytes:
        return data.replace(b"PORT", b"%d" % self.port)

    async def answer(self, method: str = "GET") -> tuple[h11.Response, bytes]:
        """Return the next complete answer, read by h11, which is independent of our framing."""
        peer = h11.Connection(h11.CLIENT)
        peer.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        peer.send(h11.EndOfMessage())
        if self._buffer:
            peer.receive_data(bytes(self._buffer))
        response, body = None, b""
        while not isinstance(event := peer.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif event is h11.NEED_DATA:
                peer.receive_data(await self.stream.receive_some())
            else:
                assert isinstance(event, h11.InformationalResponse), event
        self._buffer = bytearray(peer.trailing_data[0])
        assert response is not None
        return response, body

    async def rest(self) -> bytes:
        """Return all data until the connection is closed or reset."""
        received = bytes(self._buffer)
        try:
            async for data in self.stream:
                received += data
        except trio.BrokenResourceError:
            pass
        return received

    async def is_served(self) -> bool:
        await self.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        response, _ = await self.answer()
        return response.status_code == 200


class Served:
    def __init__(self, port: int, stopping: trio.Event) -> None:
        self.port = port
        self.stopping = stopping

    @asynccontextmanager
    async def client(self, address: str = "127.0.0.1") -> AsyncIterator[Client]:
        """Yield a client that connects from `address`."""
        there = ("127.0.0.1", self.port)
        async with await trio.open_tcp_stream(*there, local_address=address) as stream:
            yield Client(stream, self.port)


@asynccontextmanager
async def serving(
    handler: Handler | None = None,
    limits: Limits | None = None,
    *,
    judge: Judge | None = None,
    guarded: bool = True,
    guard: Guard | None = None,
) -> AsyncIterator[Served]:
    listeners = open_listeners(0)
    port = get_port(listeners)
    stopping = trio.Event()
    run = partial(
        serve,
        judge or (make_router(ROUTES) if handler is None else anybody(handler)),
        listeners,
        guard=guard or (check_loopback_caller if guarded else None),
        limits=limits or Limits(),
        stop_event=stopping,
    )
    async with trio.open_nursery() as nursery:

        async def start(task_status: trio.TaskStatus[None]) -> None:
            await run(task_status=task_status)

        await nursery.start(start)
        yield Served(port, stopping)
        stopping.set()


def header(response: h11.Response, name: str) -> str | None:
    values = [value.decode() for key, value in response.headers if key == name.encode()]
    return ", ".join(values) if values else None


class Ticks:
    """A handler that answers with a stream of `count` pieces. It waits for `more` after each piece,
    and sets `closed` when the stream ends.
    """

    def __init__(self, count: int = 10**9, piece: bytes = b"data: 1\n\n") -> None:
        self.count = count
        self.piece = piece
        self.more = trio.Event()
        self.closed = trio.Event()

    async def __call__(self, request: Request) -> Response:
        return Response(200, content_type="text/event-stream", stream=self._pieces)

    async def _pieces(self) -> AsyncIterator[bytes]:
        try:
            for _ in range(self.count):
                yield self.piece
                await self.more.wait()
        finally:
            self.closed.set()


PACE = 4


async def drip(client: Client, data: bytes) -> int:
    """Send one byte every PACE seconds until the server ends the connection, and return their
    number.
    """
    for sent, octet in enumerate(client.filled(data)):
        with trio.move_on_after(PACE):
            await trio.lowlevel.wait_readable(client.stream.socket)
            return sent
        await client.stream.send_all(bytes([octet]))
    raise AssertionError("the server has waited for all of it")
