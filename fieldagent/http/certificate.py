"""Certificate of a server. The certificate is reloaded when its files change, so a renewal needs no
restart.

New connections use the new certificate, and open connections keep the old one. If the pair does not
match, for example while only one file is written, the fault is logged once and the server keeps the
old pair.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import trio

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 60.0
"""Seconds between two checks of the files."""

_State = tuple[tuple[int, int, int], ...]


class Certificate:
    """Certificate of a server, with the TLS `context` that uses it. Raises OSError (or its subclass
    ssl.SSLError) if the files cannot be used.
    """

    def __init__(self, chain: Path, key: Path) -> None:
        self._files = (chain, key)
        self._state = self._read_state()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Send no TLS session tickets: agents never resume a session, and tickets add 509 bytes to
        # each link.
        self.context.num_tickets = 0
        self.context.load_cert_chain(chain, key)

    def reload(self) -> None:
        """Reload the certificate. If the new certificate cannot be used, log the fault and keep the
        current one. Raises no error.
        """
        try:
            self._state = self._read_state()
            # Try the new pair in a separate context first, so that a failure half-way does not
            # affect the pair in use.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)
            self.context.load_cert_chain(*self._files)
        except OSError as error:
            names = " and ".join(map(str, self._files))
            reason = error.strerror or error
            log.error("%s cannot be used: %s; keeping the previous certificate", names, reason)
        else:
            log.info("%s was read again", self._files[0])

    async def watch(self) -> None:
        """Reload the certificate whenever its files change, until cancelled."""
        while True:
            await trio.sleep(CHECK_INTERVAL_S)
            if self._state != self._read_state():
                self.reload()

    def _read_state(self) -> _State:
        return tuple(map(_read_state, self._files))


def _read_state(path: Path) -> tuple[int, int, int]:
    try:
        now = path.stat()
    except OSError:
        return (0, 0, 0)
    return (now.st_ino, now.st_mtime_ns, now.st_size)
