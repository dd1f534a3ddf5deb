"""TLS for both programs, either end of it, with the manners of what it stands for.

OpenSSL is handed bytes, never a socket. A failed system call of its own leaves an entry in the
thread's error queue, where Python 3.13 lets it lie; the next read of any other connection that only
has to wait is then told to have failed (SSL_get_error(3), python/cpython#148594).
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import trio
from trio.lowlevel import wait_readable, wait_writable

RECORD_MAX = 16_384
"""Plain bytes of one TLS record (RFC 8446 5.1)."""
_HEAD = 5
"""Bytes that tell a record's type and version and, in the last two, the length of the rest."""


class SecureSocket:
    """The server's end, with the methods of a socket that the server uses.

    Received is one record at a time and no byte of the next, so that waiting for the socket is
    waiting for the next bytes.
    """

    def __init__(self, peer: socket.socket, context: ssl.SSLContext) -> None:
        self._peer = peer
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._arrived, self._leaving, server_side=True)
        self._head = b""
        """As much as has come of the head of the record that is arriving."""
        self._rest = 0
        """Bytes of it that are missing once its head is there."""
        self._unsent = b""
        """What the socket had no room for."""
        self._taken = 0
        """How many plain bytes are in records that have not all been sent."""

    def fileno(self) -> int:
        """Return the descriptor to wait for, the socket's."""
        return self._peer.fileno()

    async def handshake(self) -> None:
        """Carry out the handshake. Raises OSError, of which ssl.SSLError is one."""
        while not self._advance_handshake():
            await self._send_all()
            await wait_readable(self._peer)
            with suppress(BlockingIOError):
                self._take_in()
        await self._send_all()

    def _advance_handshake(self) -> bool:
        """As far as what has come allows: whether it is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            self._send_what_goes()  # the alert that tells the peer why
            raise
        return True

    def recv(self, size: int) -> bytes:
        """Return what was received. `size` is at least RECORD_MAX; b"" when the peer has closed its
        side."""
        while True:
            if not self._take_in():
                continue
            try:
                return self._tls.read(size)
            except ssl.SSLWantReadError:
                self._send_what_goes()  # the record was for TLS itself, which may answer
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    def send(self, data: bytes | memoryview) -> int:
        """Send some of it and return how many bytes. After BlockingIOError the same bytes must be
        sent next."""
        if data and not self._taken:
            self._taken = self._tls.write(data[:RECORD_MAX])
        self._send()
        taken, self._taken = self._taken, 0
        return taken

    def shutdown(self, how: int) -> None:
        """Say goodbye in TLS, then shut the socket down. Raises OSError."""
        self._say_goodbye()
        self._peer.shutdown(how)

    def close(self) -> None:
        """Say goodbye in TLS, then close the socket; waits for nothing."""
        self._say_goodbye()
        self._peer.close()

    def _say_goodbye(self) -> None:
        """close_notify; the peer's is not waited for (RFC 8446 6.1)."""
        with suppress(OSError):
            self._tls.unwrap()
        self._send_what_goes()

    def _take_in(self) -> bool:
        """Hand on what has come of one record: whether that is all of it. Raises OSError."""
        data = self._peer.recv(self._rest or _HEAD - len(self._head))
        if data:
            self._arrived.write(data)
        else:
            self._arrived.write_eof()
        if self._rest:
            self._rest -= len(data)
        else:
            self._head += data
            if len(self._head) == _HEAD:
                self._rest, self._head = int.from_bytes(self._head[3:]), b""
        return not data or not (self._rest or self._head)

    async def _send_all(self) -> None:
        while True:
            try:
                return self._send()
            except BlockingIOError:
                await wait_writable(self._peer)

    def _send(self) -> None:
        while self._unsent or self._leaving.pending:
            self._unsent = self._unsent or self._leaving.read()
            self._unsent = self._unsent[self._peer.send(self._unsent) :]

    def _send_what_goes(self) -> None:
        with suppress(OSError):
            self._send()


class SecureStream(trio.abc.Stream):
    """The client's end. Whatever fails in it or below it is trio.BrokenResourceError."""

    def __init__(self, stream: trio.abc.Stream, context: ssl.SSLContext, host: str) -> None:
        self._tls = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)

    async def handshake(self) -> None:
        """Agree on keys, and check the host's certificate. Raises trio.BrokenResourceError."""
        with _failure_is_breakage():
            await self._tls.do_handshake()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receive some bytes; b"" once the peer has closed. Raises trio.BrokenResourceError."""
        with _failure_is_breakage():
            return await self._tls.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of it. Raises trio.BrokenResourceError; cancelled, a part may have been sent."""
        with _failure_is_breakage():
            await self._tls.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room to send. Raises trio.BrokenResourceError."""
        with _failure_is_breakage():
            await self._tls.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Say goodbye in TLS and close; the peer's goodbye is not waited for."""
        with _failure_is_breakage():
            await self._tls.aclose()


async def secured(stream: trio.abc.Stream, context: ssl.SSLContext, host: str) -> SecureStream:
    """Return `stream` in TLS, with `host` proven. Raises trio.BrokenResourceError, and closes it
    then; its cause is for `tls.fault`."""
    secure = SecureStream(stream, context, host)
    try:
        await secure.handshake()
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return secure


@contextmanager
def _failure_is_breakage() -> Iterator[None]:
    """trio lets pass what an SSLObject raises beside SSLError."""
    try:
        yield
    except OSError as error:
        raise trio.BrokenResourceError from error
