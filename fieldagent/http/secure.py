"""TLS on a non-blocking socket, with the manners of a plain one."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress

from trio.lowlevel import wait_readable, wait_writable

RECORD_MAX = 16_384
"""Plain bytes of one TLS record (RFC 8446 5.1). Who receives at least that many leaves nothing
behind in OpenSSL, so that waiting for the socket is waiting for the next bytes."""


class SecureSocket:
    """The methods of a socket that the server uses. TLS's own waits are BlockingIOError here."""

    def __init__(self, peer: socket.socket, context: ssl.SSLContext) -> None:
        self._tls = context.wrap_socket(peer, server_side=True, do_handshake_on_connect=False)

    def fileno(self) -> int:
        return self._tls.fileno()

    async def handshake(self) -> None:
        """Raises OSError, of which ssl.SSLError is one."""
        while True:
            try:
                return self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await wait_readable(self._tls)
            except ssl.SSLWantWriteError:
                await wait_writable(self._tls)

    def recv(self, size: int) -> bytes:
        """`size` is at least RECORD_MAX; b"" when the peer has closed its side."""
        try:
            return self._tls.recv(size)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def send(self, data: bytes | memoryview) -> int:
        """After BlockingIOError the same bytes must be sent next."""
        try:
            return self._tls.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def shutdown(self, how: int) -> None:
        self._say_goodbye()
        # Not SSLSocket's own, which would let the peer's last records through undecrypted.
        socket.socket.shutdown(self._tls, how)

    def close(self) -> None:
        self._say_goodbye()
        self._tls.close()

    def _say_goodbye(self) -> None:
        """close_notify; the peer's is not waited for (RFC 8446 6.1)."""
        with suppress(OSError, ValueError):
            self._tls.unwrap()
