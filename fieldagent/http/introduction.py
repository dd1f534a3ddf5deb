"""For whom a proxy comes: it says so before anything else (`wire.proxy_protocol`)."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Sequence

import trio

from fieldagent.http.address import Network, is_in
from fieldagent.system.seldom import Seldom
from fieldagent.wire import proxy_protocol
from fieldagent.wire.errors import RemoteProtocolError

log = logging.getLogger(__name__)


class Introductions:
    """By the PROXY protocol, and from the `trusted` alone."""

    def __init__(self, trusted: Sequence[Network]) -> None:
        self._trusted = trusted
        self._refused = Seldom(time.monotonic)

    async def client_of(self, peer: socket.socket, proxy: str) -> str | None:
        """Read which client a proxy speaks for, or the proxy itself; None where nobody is to be
        served; the log says why, now and then."""
        try:
            if not is_in(proxy, self._trusted):
                raise RemoteProtocolError("trusted-proxies does not hold that address")
            head = await _exactly(peer, proxy_protocol.HEAD)
            behind = await _exactly(peer, proxy_protocol.length_behind(head))
            return proxy_protocol.client_of(head, behind) or proxy
        except (OSError, RemoteProtocolError) as error:
            if count := self._refused.note():
                message = f"{count} connections from proxies were refused, the last from %s: %s"
                log.warning(message, proxy, error)
            return None


async def _exactly(peer: socket.socket, count: int) -> bytes:
    """No byte more: what follows is the client's."""
    content = b""
    while len(content) < count:
        await trio.lowlevel.wait_readable(peer)
        more = peer.recv(count - len(content))
        if not more:
            raise RemoteProtocolError("it left before it said for whom it comes")
        content += more
    return content
