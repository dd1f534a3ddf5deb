"""WebSockets (RFC 6455) over streams: complete binary messages, with the protocol of `websockets`
but without its I/O.

Extensions and subprotocols are neither offered nor accepted. Compression does not make messages of
a few bytes shorter, and each compressor costs a third of a megabyte.
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

from fieldagent.http.headers import parse_delay

QUIET_LOG = logging.getLogger(f"{__name__}.protocol")
"""Logger for `websockets`, at WARNING. The library would log headers with tokens at DEBUG, and the
end of each connection at INFO."""
QUIET_LOG.setLevel(logging.WARNING)

_READ_SIZE = 16_384


class WebSocketClosed(Exception):
    """Error: the WebSocket has ended. `code` is the peer's code, or 1006 (7.1.5) if the connection
    broke.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason or 'no reason was given'} ({code})")
        self.code = code
        self.reason = reason

    @property
    def is_broken(self) -> bool:
        """Return True if the connection broke without a close frame."""
        return self.code == CloseCode.ABNORMAL_CLOSURE


class HandshakeRefused(Exception):
    """Error: the server did not accept the handshake for a WebSocket."""

    def __init__(self, status: int, detail: str, retry_after: float | None = None) -> None:
        super().__init__(f"HTTP {status}: {detail}" if status else detail)
        self.status = status
        """HTTP status, or 0 if the response was not HTTP."""
        self.retry_after = retry_after
        """Seconds after which the server wants a retry, or None if unknown."""


class WebSocket:
    """One end of a WebSocket. Only one task may receive, but any task may send. A cancelled send
    breaks the WebSocket.
    """

    def __init__(self, protocol: Protocol, stream: trio.abc.Stream) -> None:
        self._protocol = protocol
        self._stream = stream
        self._turn = trio.StrictFIFOLock()
        self._messages: deque[bytes] = deque()
        self._partial = bytearray()
        self.date = ""
        """Date header of the server's handshake."""
        self._process_events(protocol)

    async def receive(self) -> bytes:
        """Wait for the next message and return it. Raises WebSocketClosed if the WebSocket has
        ended.
        """
        while not self._messages:
            self._raise_if_ended()
            await self.read()
        return self._messages.popleft()

    async def read(self) -> None:
        """Read bytes from the stream, and send the replies that the protocol requires."""
        with _convert_broken():
            data = await self._stream.receive_some(_READ_SIZE)
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        self._process_events(self._protocol)
        await self._flush()

    def _process_events(self, protocol: Protocol) -> None:
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
                self._messages.append(bytes(self._partial))
                self._partial.clear()

    def _raise_if_ended(self) -> None:
        protocol = self._protocol
        if protocol.close_rcvd is not None:
            raise WebSocketClosed(protocol.close_rcvd.code, protocol.close_rcvd.reason)
        if protocol.close_sent is not None:
            raise WebSocketClosed(protocol.close_sent.code, protocol.close_sent.reason)
        if protocol.reader.eof or protocol.parser_exc is not None:
            raise WebSocketClosed(CloseCode.ABNORMAL_CLOSURE, "the connection was broken off")

    async def send(self, message: bytes) -> None:
        """Send one message, and wait until the stream has accepted it. Raises WebSocketClosed if
        the WebSocket has ended.
        """
        try:
            self._protocol.send_binary(message)
        except InvalidState:
            self._raise_if_ended()
            raise
        await self._flush()

    async def close(self, code: int, reason: str) -> None:
        """Send the reason to the peer, if possible, and wait for its close frame.

        The caller limits the wait. The caller that opened the stream closes it only afterwards,
        because closing with unread bytes would reset the connection and lose the reason.
        """
        with suppress(InvalidState, WebSocketClosed):
            # A close frame contains at most 123 bytes of the reason (RFC 6455, 5.5). An incomplete
            # character at the end is dropped.
            self._protocol.send_close(code, reason.encode()[:123].decode(errors="ignore"))
            await self._flush()
            while self._protocol.close_rcvd is None and not self._protocol.reader.eof:
                await self.read()

    async def _flush(self) -> None:
        async with self._turn:
            for data in self._protocol.data_to_send():
                # Ignore b"", which asks for a half-close, because the connection is closed in a
                # moment.
                if data:
                    with _convert_broken():
                        await self._stream.send_all(data)


_CONTROL = {Opcode.CLOSE, Opcode.PING, Opcode.PONG}


@contextmanager
def _convert_broken() -> Iterator[None]:
    try:
        yield
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        raise WebSocketClosed(
            CloseCode.ABNORMAL_CLOSURE, "the connection was broken off"
        ) from error


async def connect(
    stream: trio.abc.Stream, url: str, headers: dict[str, str], *, max_size: int
) -> WebSocket:
    """Run the client's handshake over a stream to `url` (ws: or wss:).

    Raises HandshakeRefused if the server does not accept the handshake, and WebSocketClosed if the
    connection breaks.
    """
    protocol = ClientProtocol(parse_uri(url), max_size=max_size, logger=QUIET_LOG)
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
            again = parse_delay(answer.headers.get("Retry-After", ""))
            raise HandshakeRefused(answer.status_code, answer.reason_phrase, again)
        case Exception(__cause__=EOFError()):
            raise WebSocketClosed(CloseCode.ABNORMAL_CLOSURE, "the connection was broken off")
        case trouble:
            raise HandshakeRefused(0, f"no WebSocket: {trouble}")
