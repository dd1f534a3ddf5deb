"""A connection after 101 (Switching Protocols): a stream of bytes in both directions."""

from __future__ import annotations

import socket

import trio
from trio.lowlevel import checkpoint, wait_readable, wait_writable

from fieldagent.http.secure import RECORD_MAX, SecureSocket


class UpgradedStream(trio.abc.Stream):
    """The server's socket as a trio Stream. The server closes it after its user returns."""

    def __init__(self, peer: socket.socket | SecureSocket, already: bytes) -> None:
        """`already` contains the bytes that arrived before the switch; they are received first."""
        self._socket = peer
        self._already = already

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Receive at most one TLS record. `max_bytes` is ignored: all received bytes are
        returned.
        """
        already, self._already = self._already, b""
        if already:
            await checkpoint()
            return already
        while True:
            await wait_readable(self._socket)
            try:
                return self._socket.recv(RECORD_MAX)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError from error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all bytes. Raises trio.BrokenResourceError. If cancelled, a part may have
        been sent.
        """
        rest = memoryview(data)
        await checkpoint()
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await wait_writable(self._socket)
            except OSError as error:
                raise trio.BrokenResourceError from error

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the socket has space."""
        await wait_writable(self._socket)

    async def aclose(self) -> None:
        """Do nothing: the server closes the connection after its user returns."""
        await checkpoint()
