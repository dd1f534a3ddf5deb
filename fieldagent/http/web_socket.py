"""WebSockets (RFC 6455) over streams: whole binary messages, by `websockets` without its I/O.

No extension and no subprotocol is offered or taken: messages of a few bytes gain nothing by
compression, and each compressor would cost a third of a megabyte.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import trio
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidState, InvalidStatus
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response as Answer
from websockets.protocol import Protocol, State
from websockets.uri import parse_uri

from fieldagent.http.date import read_delay

QUIET = logging.getLogger(f"{__name__}.protocol")
"""For `websockets`, which would log headers with tokens at DEBUG, and every end at INFO."""
QUIET.setLevel(logging.WARNING)

_READ_SIZE = 16_384


class Closed(Exception):
    """It has ended: `code` is the peer's, or 1006 (7.1.5) when the connection broke."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason or 'no reason was given'} ({code})")
        self.code = code
        self.reason = reason

    @property
    def broke_off(self) -> bool:
        """Return whether it broke off: nobody said that it was to end."""
        return self.code == CloseCode.ABNORMAL_CLOSURE


class HandshakeRefused(Exception):
    """The server answered the handshake with something else than a WebSocket."""

    def __init__(self, status: int, detail: str, retry_after: float | None = None) -> None:
        super().__init__(f"HTTP {status}: {detail}" if status else detail)
        self.status = status
        """0 when it was no HTTP at all."""
        self.retry_after = retry_after
        """Seconds after which the server wants to be asked again, where it says so."""


class WebSocket:
    """One end. One task receives; any may send, in turns. Who is cancelled sending breaks it."""

    def __init__(self, protocol: Protocol, stream: trio.abc.Stream) -> None:
        self._protocol = protocol
        self._stream = stream
        self._turn = trio.StrictFIFOLock()
        self._whole: deque[bytes] = deque()
        self._partial = bytearray()
        self.date = ""
        """What the server told of the time with its handshake."""
        self._take(protocol)

    async def receive(self) -> bytes:
        """Wait for the next message and return it. Raises Closed."""
        while not self._whole:
            self._raise_if_ended()
            await self.read()
        return self._whole.popleft()

    async def read(self) -> None:
        """Take in what has come, and answer it where the protocol wants that."""
        with _broken_is_closed():
            data = await self._stream.receive_some(_READ_SIZE)
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        self._take(self._protocol)
        await self._flush()

    def _take(self, protocol: Protocol) -> None:
        for event in protocol.events_received():
            if isinstance(event, Answer):
                self.date = event.headers.get("Date", "")
            if not isinstance(event, Frame) or event.opcode in _CONTROL:
                continue
            if event.opcode is Opcode.TEXT:
                protocol.fail(CloseCode.UNSUPPORTED_DATA, "a text message")
                return
            self._partial += event.data
            if event.fin:
                self._whole.append(bytes(self._partial))
                self._partial.clear()

    def _raise_if_ended(self) -> None:
        protocol = self._protocol
        if protocol.close_rcvd is not None:
            raise Closed(protocol.close_rcvd.code, protocol.close_rcvd.reason)
        if protocol.close_sent is not None:
            raise Closed(protocol.close_sent.code, protocol.close_sent.reason)
        if protocol.reader.eof or protocol.parser_exc is not None:
            raise Closed(CloseCode.ABNORMAL_CLOSURE, "the connection was broken off")

    async def send(self, message: bytes) -> None:
        """Send one message. Raises Closed."""
        try:
            self._protocol.send_binary(message)
        except InvalidState:
            self._raise_if_ended()
            raise
        await self._flush()

    async def close(self, code: int, reason: str) -> None:
        """Tell the peer why, if it can be told, and wait until it says the same.

        The wait is the caller's to end. The stream is closed by whoever opened it, and not before:
        closing with bytes unread would reset the connection, and take the reason away.
        """
        with suppress(InvalidState, Closed):
            # The frame holds at most 123 bytes of reason (5.5).
            self._protocol.send_close(code, reason.encode()[:120].decode(errors="ignore"))
            await self._flush()
            while self._protocol.close_rcvd is None and not self._protocol.reader.eof:
                await self.read()

    async def _flush(self) -> None:
        async with self._turn:
            for data in self._protocol.data_to_send():
                if data:  # b"" asks for a half-close; the whole will be closed in a moment
                    with _broken_is_closed():
                        await self._stream.send_all(data)


_CONTROL = {Opcode.CLOSE, Opcode.PING, Opcode.PONG}


@contextmanager
def _broken_is_closed() -> Iterator[None]:
    try:
        yield
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        raise Closed(CloseCode.ABNORMAL_CLOSURE, "the connection was broken off") from error


async def connect(
    stream: trio.abc.Stream, url: str, headers: dict[str, str], *, max_size: int
) -> WebSocket:
    """Carry out the client's handshake over a stream that leads to `url` (ws: or wss:).

    Raises HandshakeRefused, Closed.
    """
    protocol = ClientProtocol(parse_uri(url), max_size=max_size, logger=QUIET)
    handshake = protocol.connect()
    for name, value in headers.items():
        handshake.headers[name] = value
    protocol.send_request(handshake)
    opening = WebSocket(protocol, stream)
    await opening._flush()
    while protocol.state is State.CONNECTING and protocol.handshake_exc is None:
        await opening.read()
    match protocol.handshake_exc:
        case None:
            return opening
        case InvalidStatus(response=answer):
            again = read_delay(answer.headers.get("Retry-After", ""))
            raise HandshakeRefused(answer.status_code, answer.reason_phrase, again)
        case Exception(__cause__=EOFError()):
            raise Closed(CloseCode.ABNORMAL_CLOSURE, "the connection was broken off")
        case trouble:
            raise HandshakeRefused(0, f"no WebSocket: {trouble}")
