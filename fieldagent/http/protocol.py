"""The server's side of HTTP/1.1: converts bytes to requests, and responses to bytes.

h11 parses request heads, with a new h11 connection for each head. h11 gets only complete heads,
which `guard` has checked as raw bytes, and never a body. This module finds the end of a body, and
parses the chunked transfer coding (RFC 9112 section 7.1) strictly. The module uses no I/O and no
clock.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from http import HTTPStatus

import h11

from fieldagent.http import guard as guards
from fieldagent.http.limits import Limits
from fieldagent.http.message import Admission, Guard, Request, Response
from fieldagent.http.problem import Problem, make_too_large
from fieldagent.http.query import convert_to_origin_form, query_pairs

_BYTEARRAY_REPR = re.compile(r"bytearray\(b(['\"])(.*)\1\)", re.DOTALL)


def describe_parser_error(error: h11.RemoteProtocolError) -> str:
    """Return the text of h11's error. A refused line is shown as text, without Python's
    `bytearray(...)` around it.
    """
    return _BYTEARRAY_REPR.sub(lambda shown: shown[2].replace("\\'", "'"), str(error))


_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"'
_EXTENSION = rb"[\t ]*;[\t ]*%b(?:[\t ]*=[\t ]*(?:%b|%b))?" % (_TOKEN, _TOKEN, _QUOTED)
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]+)(?:%b)*" % _EXTENSION)
_SIZE_LINE_BYTES = 256
_BARE_LF = re.compile(rb"(?<!\r)\n")
_TRAILER = rb"%b:[\t\x20-\x7e\x80-\xff]*" % _TOKEN
_TRAILERS = re.compile(rb"(?:%b\r\n)*\r\n" % _TRAILER)
_BEGUN_TRAILERS = re.compile(rb"(?:%b\r\n)*(?:%b\r?|%b|\r)?" % (_TRAILER, _TRAILER, _TOKEN))


class ChunkedBody:
    """Collects the content of a chunked body. A chunk that is too large is refused at its size
    line.
    """

    def __init__(self, limits: Limits, maximum: int) -> None:
        """`maximum` is the maximum size of the content in bytes."""
        self.content = bytearray()
        self._limits = limits
        self.most = maximum
        self._framing = 0
        self._last_seen = False

    def consume_chunks(self, data: bytearray) -> bool:
        """Remove the complete parts from the front of `data`. Return True if the body is
        complete.
        """
        while not self._last_seen:
            end = data.find(b"\r\n")
            if end < 0:
                _check_size_line_begins(data)
                return False
            size = _read_size(data, end)
            if size == 0:
                self._last_seen = True
                del data[:end]
            elif not self._consume_chunk(data, end + 2, size):
                return False
        return self._consume_trailers(data)

    def _consume_chunk(self, data: bytearray, start: int, size: int) -> bool:
        if len(self.content) + size > self.most:
            raise make_too_large(self.most)
        end = start + size
        if len(data) < end + 2:
            return False
        if data[end : end + 2] != b"\r\n":
            raise Problem(400, "a chunk is longer than its size field (RFC 9112 7.1)")
        self._framing += start + 2
        if self._framing > self._limits.chunk_framing:
            raise Problem(413, "the chunks are too small: send fewer, larger ones")
        self.content += data[start:end]
        del data[: end + 2]
        return True

    def _consume_trailers(self, data: bytearray) -> bool:
        """Check and drop the trailers, which are not used. Return True if they are complete."""
        end = data.find(b"\r\n\r\n")
        if (len(data) if end < 0 else end) > self._limits.head:
            raise Problem(431, f"the trailers are larger than {self._limits.head} bytes")
        shape, until = (_BEGUN_TRAILERS, len(data)) if end < 0 else (_TRAILERS, end + 4)
        if not shape.fullmatch(data, 2, until):
            raise Problem(400, "a trailer is not a header line (RFC 9112 7.1.2)")
        if end < 0:
            return False
        del data[: end + 4]
        return True


def _read_size(data: bytearray, end: int) -> int:
    line = _SIZE_LINE.fullmatch(data, 0, end)
    if line is None or end > _SIZE_LINE_BYTES:
        raise Problem(400, "a chunk does not begin with its size (RFC 9112 7.1)")
    return int(line[1], 16)


def _check_size_line_begins(data: bytearray) -> None:
    if len(data) > _SIZE_LINE_BYTES or _BARE_LF.search(data):
        raise Problem(400, "a chunk's size line ends in LF alone or is far too long")


_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}
_BODYLESS = frozenset({101, 204, 304})
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t -~]*")
"""Pattern of a valid header line. The check is needed because a value may come from a caller and
contain a line end."""
_EMPTY_LINES = re.compile(rb"(?:\r\n){1,8}")
"""Empty lines that an older client sends after a body (RFC 9112 2.2). If there are more, the bytes
are not a request."""
_CLOSE = re.compile(r"(?:^|,)[ \t]*close[ \t]*(?:,|$)", re.IGNORECASE)


class MissingPart(Enum):
    """Missing part of the next request."""

    IDLE = "idle"
    HEAD = "head"
    BODY = "body"
    NOTHING = "nothing"
    """The peer has closed its side between requests."""


class ServerProtocol:
    """One connection. The calls for each request, in order:

    Call `next_head` until the head is complete. Then call `admit`, and `next_body` until the body
    is complete. If the head was refused, call `drop_body` instead. Then call `respond`. For a
    stream, also call `make_piece` for each part, and `end`. Finally call `start_next_cycle`. After
    a Problem that this class raises, only `respond` with `close` may follow.
    """

    def __init__(self, limits: Limits, guard: Guard | None = None, peer: str = "") -> None:
        self._limits = limits
        self._peer = peer
        self._guard = guard
        self._buffer = bytearray()
        self._has_ended = False
        self._scanned = 0
        self._head: Request | None = None
        self._length: int | None = 0
        """Length of the body. None for a chunked body, whose length is known only at its end."""
        self._chunked: ChunkedBody | None = None
        self._asked_to_continue = False
        self._may_go_on = False
        self._understands_chunks = False

    def receive(self, data: bytes) -> None:
        """Add bytes from the peer. b"" means that the peer has closed its side."""
        self._buffer += data
        self._has_ended = not data

    def next_head(self) -> Request | MissingPart:
        """Return the head of the next request, or the missing part. Raises Problem if the bytes are
        not a valid head.
        """
        try:
            return self._read_head()
        except h11.RemoteProtocolError as error:
            raise Problem(error.error_status_hint, describe_parser_error(error)) from error

    def admit(self, admission: Admission) -> None:
        """Admit the request, so that its body can be read. Raises Problem if the body is not
        accepted.
        """
        assert self._head is not None
        if self._length != 0:
            guards.check_content(self._head, admission)
        is_chunked = self._length is None
        self._chunked = ChunkedBody(self._limits, admission.body) if is_chunked else None

    @property
    def announced(self) -> int:
        """Return the number of bytes that the body has or, if it is chunked, may have at most."""
        return self._length or 0 if self._chunked is None else self._chunked.most

    def next_body(self) -> Request | MissingPart:
        """Return the complete request, or BODY if a part of the body is missing. Raises Problem if
        the body is malformed or too large.
        """
        assert self._head is not None
        body = (
            self._read_fixed_body()
            if self._chunked is None
            else self._read_chunked_body(self._chunked)
        )
        if body is None:
            self._expect_more("body")
            return MissingPart.BODY
        head, self._head = self._head, None
        if not body:
            return head
        return head._replace(body=body)

    def drop_body(self) -> None:
        """Drop the body of a refused head. If the body has not arrived completely, the rest is not
        read and the connection ends.
        """
        self._head = None
        if self._read_fixed_body() is None:
            self._may_go_on = False

    def make_interim(self) -> bytes:
        """Return the response 100 (Continue) if the peer waits for it before sending the body,
        otherwise b"".
        """
        if self._buffer or not self._asked_to_continue:
            return b""
        self._asked_to_continue = False
        return b"HTTP/1.1 100 Continue\r\n\r\n"

    def _read_head(self) -> Request | MissingPart:
        buffer = self._buffer
        if empty := _EMPTY_LINES.match(buffer):
            del buffer[: empty.end()]
        if not buffer or buffer == b"\r":
            return MissingPart.NOTHING if self._has_ended else MissingPart.IDLE
        end = buffer.find(b"\r\n\r\n", max(0, self._scanned - 3)) + 4
        if end < 4:
            guards.screen_partial_head(buffer, self._scanned, self._limits)
            self._expect_more("head")
            self._scanned = len(buffer)
            return MissingPart.HEAD
        self._head = self._accept_head(bytes(buffer[:end]))
        del buffer[:end]
        self._scanned = 0
        return self._head

    def _accept_head(self, head_bytes: bytes) -> Request:
        guards.screen_head(head_bytes, self._limits)
        self._may_go_on = False
        parser = h11.Connection(h11.SERVER)
        parser.receive_data(head_bytes)
        event = parser.next_event()
        assert isinstance(event, h11.Request)
        head = _make_request(event, self._peer)
        headers = head.headers
        self._understands_chunks = event.http_version == b"1.1"
        self._asked_to_continue = parser.they_are_waiting_for_100_continue
        length = int(headers.get("content-length", "0"))
        self._length = None if "transfer-encoding" in headers else length
        if self._guard is not None:
            self._guard(head)
        guards.check_expectation(head)
        closes = "connection" in headers and _CLOSE.search(headers["connection"])
        self._may_go_on = self._understands_chunks and not closes
        return head

    def _read_fixed_body(self) -> bytes | None:
        if self._length is None or len(self._buffer) < self._length:
            return None
        body = bytes(self._buffer[: self._length])
        del self._buffer[: self._length]
        return body

    def _read_chunked_body(self, chunked: ChunkedBody) -> bytes | None:
        return bytes(chunked.content) if chunked.consume_chunks(self._buffer) else None

    def _expect_more(self, part: str) -> None:
        if self._has_ended:
            raise Problem(400, f"the connection ended before the request's {part} did")

    def respond(self, response: Response, *, date: bytes, close: bool, head_only: bool) -> bytes:
        """Return the head and, unless it is a stream, the body of a response.

        `head_only` answers a HEAD request: the length is sent, the body is not.
        """
        streamed = response.stream is not None
        self._may_go_on &= not (close or streamed)
        framing = b""
        if response.status not in _BODYLESS:
            if not streamed:
                framing = b"content-length: %d\r\n" % len(response.body)
            elif self._understands_chunks:
                framing = b"transfer-encoding: chunked\r\n"
        described = response.content_type if streamed or response.body else None
        start = _make_head(response.status, described, date, not self._may_go_on)
        head = b"".join((start, framing, *map(_make_header, response.headers), b"\r\n"))
        return head if head_only else head + response.body

    def make_piece(self, data: bytes) -> bytes:
        """Return one part of a stream's body."""
        if not self._understands_chunks:
            return data
        return b"%x\r\n%b\r\n" % (len(data), data) if data else b""

    def end(self) -> bytes:
        """Return the end of a stream's body. The result is empty for HTTP/1.0, where the end of the
        connection is the end of the body.
        """
        return b"0\r\n\r\n" if self._understands_chunks else b""

    def switch(self, response: Response, *, date: bytes) -> tuple[bytes, bytes]:
        """Return the head of the response 101 (RFC 9110 7.8), and the bytes of the other protocol
        that have already arrived.
        """
        head = self.respond(response, date=date, close=False, head_only=False)
        already = bytes(self._buffer)
        self._buffer.clear()
        return head, already

    def start_next_cycle(self) -> bool:
        """Return True if the connection can be used for another request after a complete
        response.
        """
        return self._may_go_on


def _make_request(event: h11.Request, peer: str) -> Request:
    headers: dict[str, str] = {}
    for raw_name, raw_value in event.headers.raw_items():
        name, value = raw_name.decode("ascii").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if event.http_version != b"1.1":
        headers.pop("upgrade", None)  # Ignore Upgrade in HTTP/1.0 (RFC 9110 7.8).
    target = event.target.decode("ascii")
    if not target.startswith(("/", "*")):
        target = convert_to_origin_form(target, headers.get("host", ""), event.method == b"OPTIONS")
    path, _, query = target.partition("?")
    pairs = query_pairs(query) if query else ()
    return Request(event.method.decode("ascii"), path, pairs, headers, peer=peer)


@lru_cache(maxsize=64)
def _make_head(status: int, content_type: str | None, date: bytes, close: bool) -> bytes:
    """Return the first lines of a response. The results are cached, because a busy server sends the
    same lines many times a second.
    """
    lines = [
        b"HTTP/1.1 %d %b" % (status, _REASONS.get(status, b"")),
        b"date: " + date,
        b"cache-control: no-store",
        b"x-content-type-options: nosniff",
    ]
    if content_type is not None:
        lines.append(b"content-type: " + content_type.encode("ascii"))
    if close:
        lines.append(b"connection: close")
    return b"\r\n".join((*lines, b""))


def _make_header(header: tuple[str, str]) -> bytes:
    line = f"{header[0]}: {header[1]}"
    if not _HEADER.fullmatch(line):
        raise h11.LocalProtocolError(f"no header of a response: {line!r}")
    return line.encode("ascii") + b"\r\n"
