"""HTTP/1.1 from the server's side: bytes in, requests out; responses in, bytes out.

h11 parses request heads, writes responses and tells whether the connection may go on: one h11
connection for each exchange. It gets whole heads only, which `guard` has screened in the raw, and
never sees a body: where that ends is settled here and in `chunked`. No I/O, no clock.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from http import HTTPStatus

import h11

from fieldagent.http import guard as guards
from fieldagent.http.chunked import ChunkedBody
from fieldagent.http.limits import Limits
from fieldagent.http.message import Guard, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.target import query_pairs

_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}
_BODYLESS = frozenset({204, 304})
_EVERY_RESPONSE = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]


class Wait(Enum):
    """What more is needed before there is a request."""

    IDLE = "idle"
    HEAD = "head"
    BODY = "body"
    NOTHING = "nothing"
    """The peer has closed its side between requests."""


class ServerProtocol:
    """One connection. After a Problem only `respond` with `close` may follow."""

    def __init__(self, limits: Limits, guard: Guard | None = None) -> None:
        self._limits = limits
        self._guard = guard
        self._h11 = h11.Connection(h11.SERVER)
        self._buffer = bytearray()
        self._ended = False
        self._scanned = 0
        self._head: Request | None = None
        self._chunked: ChunkedBody | None = None
        self._length = 0

    def receive(self, data: bytes) -> None:
        """Take what the peer sent; b"" when it has closed its side."""
        self._buffer += data
        self._ended = not data

    def next_request(self) -> Request | Wait:
        """The next whole request, or what it waits for. Raises Problem for what is refused."""
        try:
            if self._head is None:
                wait = self._read_head()
                if wait is not None:
                    return wait
            return self._read_body()
        except h11.RemoteProtocolError as error:
            raise Problem(error.error_status_hint, str(error)) from error

    def interim(self) -> bytes:
        """The 100 (Continue) that the peer waits for before it sends the body, or nothing."""
        if self._buffer or not self._h11.they_are_waiting_for_100_continue:
            return b""
        interim = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
        return self._send(interim)

    def _read_head(self) -> Wait | None:
        buffer = self._buffer
        while buffer.startswith(b"\r\n"):  # RFC 9112 2.2: left over from an older client's body
            del buffer[:2]
        if not buffer or buffer == b"\r":
            return Wait.NOTHING if self._ended else Wait.IDLE
        end = buffer.find(b"\r\n\r\n", max(0, self._scanned - 3)) + 4
        if end < 4:
            guards.screen_partial_head(buffer, self._scanned, self._limits)
            self._expect_more("head")
            self._scanned = len(buffer)
            return Wait.HEAD
        self._accept_head(bytes(buffer[:end]))
        del buffer[:end]
        self._scanned = 0
        return None

    def _accept_head(self, raw: bytes) -> None:
        guards.screen_head(raw, self._limits)
        self._h11.receive_data(raw)
        event = self._h11.next_event()
        assert isinstance(event, h11.Request)
        head = _request(event)
        headers = head.headers
        chunked = "transfer-encoding" in headers
        self._chunked = ChunkedBody(self._limits) if chunked else None
        self._length = int(headers.get("content-length", "0"))
        if self._guard is not None:
            self._guard(head)
        guards.check_head(head, content=chunked or self._length > 0, limits=self._limits)
        self._head = head

    def _read_body(self) -> Request | Wait:
        assert self._head is not None
        body = self._take_fixed() if self._chunked is None else self._take_chunked(self._chunked)
        if body is None:
            self._expect_more("body")
            return Wait.BODY
        head, self._head = self._head, None
        if not body:
            return head
        return Request(head.method, head.path, head.query, head.headers, body)

    def _take_fixed(self) -> bytes | None:
        if len(self._buffer) < self._length:
            return None
        body = bytes(self._buffer[: self._length])
        del self._buffer[: self._length]
        return body

    def _take_chunked(self, chunked: ChunkedBody) -> bytes | None:
        return bytes(chunked.content) if chunked.take(self._buffer) else None

    def _expect_more(self, part: str) -> None:
        if self._ended:
            raise Problem(400, f"the connection ended before the request's {part} did")

    def respond(self, response: Response, *, date: bytes, close: bool, head_only: bool) -> bytes:
        """The head and, unless it is a stream, the whole of a response.

        `head_only` answers a HEAD request: the length is told, the body is not sent.
        """
        streamed = response.stream is not None
        head = self._send(
            _response_head(
                response.status,
                response.content_type,
                None if streamed else len(response.body),
                response.headers,
                date,
                close or streamed,
            )
        )
        if streamed and not head_only:
            return head
        body = self.piece(response.body) if response.body and not head_only else b""
        return head + body + self.end()

    def piece(self, data: bytes) -> bytes:
        """A body, or one piece of a stream's."""
        return self._send(h11.Data(data=data))

    def end(self) -> bytes:
        """The end of a body."""
        return self._send(h11.EndOfMessage())

    def _send(self, event: h11.Event) -> bytes:
        return self._h11.send(event) or b""

    def next_cycle(self) -> bool:
        """After a whole response: whether the connection may carry another request."""
        if self._h11.our_state is not h11.DONE:
            return False
        self._h11 = h11.Connection(h11.SERVER)
        return True


def _request(event: h11.Request) -> Request:
    headers: dict[str, str] = {}
    for raw_name, raw_value in event.headers.raw_items():
        name, value = raw_name.decode("ascii").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    path, _, query = event.target.decode("ascii").partition("?")
    pairs = query_pairs(query) if query else ()
    return Request(event.method.decode("ascii"), path, pairs, headers)


@lru_cache(maxsize=64)
def _response_head(
    status: int,
    content_type: str,
    length: int | None,
    extra: tuple[tuple[str, str], ...],
    date: bytes,
    close: bool,
) -> h11.Response:
    """Under load the same head is sent many times a second, and h11 takes its time to check one.

    `length` is None for a stream.
    """
    headers = [(b"date", date), *_EVERY_RESPONSE]
    if length != 0:
        headers.append((b"content-type", content_type.encode("ascii")))
    if length is not None and status not in _BODYLESS:
        headers.append((b"content-length", b"%d" % length))
    headers += [(name.encode("ascii"), text.encode("ascii")) for name, text in extra]
    if close:
        headers.append((b"connection", b"close"))
    return h11.Response(status_code=status, headers=headers, reason=_REASONS.get(status, b""))
