"""A server's certificate, read again when its files have changed: a renewal needs no restart.

New connections get the new one; those that are open keep theirs. A pair that does not fit, as while
only one of the files has been written, is told once and tried again; the old one goes on.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import trio

log = logging.getLogger(__name__)

LOOK = 60.0
"""Seconds between two looks at the files."""

_State = tuple[tuple[int, int, int], ...]


class Certificate:
    """`context` is what the server uses. Raises OSError, of which ssl.SSLError is one."""

    def __init__(self, chain: Path, key: Path) -> None:
        self._files = (chain, key)
        self._state = self._look()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # 509 bytes of each new link: an agent goes on with no session of before.
        self.context.num_tickets = 0
        self.context.load_cert_chain(chain, key)

    def read_again(self) -> None:
        """Read the certificate again. Raises nothing: where it cannot be used, the one that is in
        use stays."""
        try:
            self._state = self._look()
            # What is loaded halfway would be of no use: a pair is tried elsewhere first.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)
            self.context.load_cert_chain(*self._files)
        except OSError as error:
            names = " and ".join(map(str, self._files))
            why = error.strerror or error
            log.error("%s cannot be used: %s; the certificate as it was goes on", names, why)
        else:
            log.info("%s was read again", self._files[0])

    async def watch(self) -> None:
        """Read the certificate again whenever its files change, until cancelled."""
        while True:
            await trio.sleep(LOOK)
            if self._state != self._look():
                self.read_again()

    def _look(self) -> _State:
        return tuple(map(_state, self._files))


def _state(path: Path) -> tuple[int, int, int]:
    try:
        now = path.stat()
    except OSError:
        return (0, 0, 0)
    return (now.st_ino, now.st_mtime_ns, now.st_size)
