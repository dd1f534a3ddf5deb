"""TLS for both programs and both ends of a connection. The classes have the interface of the plain
connection that they replace.

OpenSSL gets bytes, never a socket. If OpenSSL made a system call itself and the call failed, an
entry would stay in the thread's error queue, which Python 3.13 does not clear. The next read of
another connection that has no bytes yet would then fail (SSL_get_error(3), python/cpython#148594).
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import trio
from trio.lowlevel import wait_readable, wait_writable

RECORD_MAX_BYTES = 16_384
"""Maximum number of plain bytes in one TLS record (RFC 8446 5.1)."""
_HEAD_BYTES = 5
"""Size of a record's header in bytes. It contains the type, the version and, in the last two bytes,
the length of the rest."""


class SecureSocket:
    """The server's end of a TLS connection, with the methods of a socket that the server uses.

    `recv` reads one record at a time and no byte of the next record. So no received bytes wait
    inside this object, and waiting for the socket is enough.
    """

    def __init__(self, peer: socket.socket, context: ssl.SSLContext) -> None:
        self._peer = peer
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_side=True)
        self._record_head = b""
        """Received part of the head of the current record."""
        self._rest = 0
        """Number of bytes that are missing after the head of the current record."""
        self._unsent = b""
        """Bytes for which the socket had no space."""
        self._unsent_plain_bytes = 0
        """Number of plain bytes in records that are not sent completely."""

    def fileno(self) -> int:
        """Return the file descriptor of the socket, so that trio can wait for it."""
        return self._peer.fileno()

    async def handshake(self) -> None:
        """Run the handshake. Raises OSError, of which ssl.SSLError is a subclass."""
        while not self._advance_handshake():
            await self._send_all()
            await wait_readable(self._peer)
            with suppress(BlockingIOError):
                self._receive_record_part()
        await self._send_all()

    def _advance_handshake(self) -> bool:
        """Advance the handshake with the received bytes. Return True if it is complete."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            self._send_available()  # Send the alert that contains the reason for the peer.
            raise
        return True

    def recv(self, size: int) -> bytes:
        """Return received bytes, or b"" if the peer has closed its side. `size` must be at least
        RECORD_MAX_BYTES. Raises BlockingIOError if the record is not complete yet, and another
        OSError if the connection broke.
        """
        while True:
            if not self._receive_record_part():
                continue
            try:
                return self._tls.read(size)
            except ssl.SSLWantReadError:
                # The record was for TLS itself, so send TLS's answer, if any.
                self._send_available()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    def send(self, data: bytes | memoryview) -> int:
        """Send the first bytes of `data`, and return their number. Raises BlockingIOError if the
        socket has no space; the caller must then send the same bytes next.
        """
        if data and not self._unsent_plain_bytes:
            self._unsent_plain_bytes = self._tls.write(data[:RECORD_MAX_BYTES])
        self._send()
        taken_bytes, self._unsent_plain_bytes = self._unsent_plain_bytes, 0
        return taken_bytes

    def shutdown(self, how: int) -> None:
        """Send the TLS goodbye, then shut the socket down. Raises OSError if the connection
        broke.
        """
        self._send_close_notify()
        self._peer.shutdown(how)

    def close(self) -> None:
        """Send the TLS goodbye, then close the socket, without waiting."""
        self._send_close_notify()
        self._peer.close()

    def _send_close_notify(self) -> None:
        """Send close_notify, without waiting for the peer's close_notify (RFC 8446 6.1)."""
        with suppress(OSError):
            self._tls.unwrap()
        self._send_available()

    def _receive_record_part(self) -> bool:
        """Pass on the received part of one record to TLS. Return True if the record is complete.
        Raises OSError if the connection broke.
        """
        data = self._peer.recv(self._rest or _HEAD_BYTES - len(self._record_head))
        if data:
            self._received.write(data)
        else:
            self._received.write_eof()
        if self._rest:
            self._rest -= len(data)
        else:
            self._record_head += data
            if len(self._record_head) == _HEAD_BYTES:
                self._rest, self._record_head = int.from_bytes(self._record_head[3:]), b""
        return not data or not (self._rest or self._record_head)

    async def _send_all(self) -> None:
        while True:
            try:
                return self._send()
            except BlockingIOError:
                await wait_writable(self._peer)

    def _send(self) -> None:
        while self._unsent or self._to_send.pending:
            self._unsent = self._unsent or self._to_send.read()
            self._unsent = self._unsent[self._peer.send(self._unsent) :]

    def _send_available(self) -> None:
        with suppress(OSError):
            self._send()


class SecureStream(trio.abc.Stream):
    """The client's end of a TLS connection. Every failure of TLS or of the underlying stream
    becomes trio.BrokenResourceError.
    """

    def __init__(self, stream: trio.abc.Stream, context: ssl.SSLContext, host: str) -> None:
        self._tls = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)

    async def handshake(self) -> None:
        """Run the handshake, and check the host's certificate. Raises trio.BrokenResourceError if
        the handshake or the check fails.
        """
        with _convert_failures():
            await self._tls.do_handshake()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Return received bytes, or b"" if the peer has closed the connection. Raises
        trio.BrokenResourceError if the connection broke.
        """
        with _convert_failures():
            return await self._tls.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all bytes. Raises trio.BrokenResourceError if the connection broke. If cancelled, a
        part may have been sent.
        """
        with _convert_failures():
            await self._tls.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is space to send. Raises trio.BrokenResourceError if the connection
        broke.
        """
        with _convert_failures():
            await self._tls.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Send the TLS goodbye and close, without waiting for the peer's goodbye."""
        with _convert_failures():
            await self._tls.aclose()


async def make_secure(stream: trio.abc.Stream, context: ssl.SSLContext, host: str) -> SecureStream:
    """Start TLS over `stream`, verify `host`, and return the secure stream. On failure, close the
    stream and raise trio.BrokenResourceError, whose cause `tls.describe_fault` explains.
    """
    secure = SecureStream(stream, context, host)
    try:
        await secure.handshake()
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return secure


@contextmanager
def _convert_failures() -> Iterator[None]:
    """Convert errors, because trio does not convert errors of an SSLObject other than SSLError."""
    try:
        yield
    except OSError as error:
        raise trio.BrokenResourceError from error
