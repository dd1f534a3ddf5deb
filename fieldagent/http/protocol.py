"""HTTP/1.1 from the server's side: bytes in, requests out; responses in, bytes out.

h11 parses heads and keeps the state of the exchange. It is handed whole heads and whole bodies
only, after `guard` has screened the raw bytes and settled where they end: bytes of the next
request never reach it early. No I/O, no clock.
"""

from __future__ import annotations

from enum import Enum
from http import HTTPStatus

import h11

from fieldagent.http import guard as guards
from fieldagent.http.limits import Limits
from fieldagent.http.message import Guard, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.target import query_pairs

_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}
_BODYLESS = frozenset({204, 304})
_CLOSE = (b"connection", b"close")
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
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * limits.head)
        self._buffer = bytearray()
        self._ended = False
        self._head: Request | None = None
        self._scanned = 0
        self._chunks: guards.ChunkedExtent | None = None
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
        return self._h11.send(interim) or b""

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
        self._chunks = guards.ChunkedExtent(self._limits) if chunked else None
        self._length = int(headers.get("content-length", "0"))
        if self._guard is not None:
            self._guard(head)
        guards.check_head(head, content=chunked or self._length > 0, limits=self._limits)
        self._head = head

    def _read_body(self) -> Request | Wait:
        extent = self._length
        complete = len(self._buffer) >= extent
        if self._chunks is not None:
            self._chunks.advance(self._buffer)
            extent, complete = self._chunks.raw, self._chunks.complete
        if not complete:
            self._expect_more("body")
            return Wait.BODY
        return self._complete(extent)

    def _expect_more(self, part: str) -> None:
        if self._ended:
            raise Problem(400, f"the connection ended before the request's {part} did")

    def _complete(self, extent: int) -> Request:
        assert self._head is not None
        head, self._head = self._head, None
        body = self._take_body(extent)
        if not body:
            return head
        return Request(head.method, head.path, head.query, head.headers, body)

    def _take_body(self, extent: int) -> bytes:
        if extent:
            self._h11.receive_data(bytes(self._buffer[:extent]))
            del self._buffer[:extent]
        pieces = []
        while isinstance(event := self._h11.next_event(), h11.Data):
            pieces.append(bytes(event.data))
        if not isinstance(event, h11.EndOfMessage):
            raise Problem(400, "the body does not end where its framing says")
        return b"".join(pieces)

    def respond(self, response: Response, *, date: bytes, close: bool, head_only: bool) -> bytes:
        """The head and, unless it is a stream, the whole of a response.

        `head_only` answers a HEAD request: the length is told, the body is not sent.
        """
        send = self._h11.send
        head = send(self._response_head(response, date, close)) or b""
        if response.stream is not None and not head_only:
            return head
        body = b"" if head_only else response.body
        data = (send(h11.Data(data=body)) or b"") if body else b""
        return head + data + (send(h11.EndOfMessage()) or b"")

    def _response_head(self, response: Response, date: bytes, close: bool) -> h11.Response:
        headers = [(b"date", date)]
        if response.body or response.stream is not None:
            headers.append((b"content-type", response.content_type.encode("ascii")))
        if response.stream is None and response.status not in _BODYLESS:
            headers.append((b"content-length", b"%d" % len(response.body)))
        headers += _EVERY_RESPONSE
        headers += [
            (name.encode("ascii"), value.encode("ascii")) for name, value in response.headers
        ]
        if close or response.stream is not None:
            headers.append(_CLOSE)
        reason = _REASONS.get(response.status, b"")
        return h11.Response(status_code=response.status, headers=headers, reason=reason)

    def piece(self, data: bytes) -> bytes:
        """One piece of a stream's body."""
        return self._h11.send(h11.Data(data=data)) or b""

    def end(self) -> bytes:
        """The end of a stream's body."""
        return self._h11.send(h11.EndOfMessage()) or b""

    def next_cycle(self) -> bool:
        """After a whole response: whether the connection may carry another request."""
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            return False
        self._h11.start_next_cycle()
        return True


def _request(event: h11.Request) -> Request:
    headers: dict[str, str] = {}
    for raw_name, raw_value in event.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    path, _, query = event.target.decode("ascii").partition("?")
    pairs = query_pairs(query) if query else ()
    return Request(event.method.decode("ascii"), path, pairs, headers)
