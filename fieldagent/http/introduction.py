"""Client addresses from a proxy. The proxy sends the address of its client before anything else
(`wire.proxy_protocol`)."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Sequence

import trio

from fieldagent.http.address import Network, is_in
from fieldagent.system.rate import EventRate
from fieldagent.wire import proxy_protocol
from fieldagent.wire.errors import RemoteProtocolError

log = logging.getLogger(__name__)


class Introductions:
    """Reader of the PROXY protocol. The reader accepts only proxies in the `trusted_networks`."""

    def __init__(self, trusted_networks: Sequence[Network]) -> None:
        self._trusted = trusted_networks
        self._refusal_rate = EventRate(time.monotonic)

    async def find_client(self, peer: socket.socket, proxy: str) -> str | None:
        """Return the address of a proxy's client, or of the proxy itself. If the connection is
        refused, return None and log the reason from time to time.
        """
        try:
            if not is_in(proxy, self._trusted):
                raise RemoteProtocolError("trusted-proxies does not hold that address")
            head = await _receive_exactly(peer, proxy_protocol.HEAD)
            remaining_head = await _receive_exactly(
                peer, proxy_protocol.compute_remaining_length(head)
            )
            return proxy_protocol.parse_client(head, remaining_head) or proxy
        except (OSError, RemoteProtocolError) as error:
            if count := self._refusal_rate.count_event():
                message = f"{count} connections from proxies were refused, the last from %s: %s"
                log.warning(message, proxy, error)
            return None


async def _receive_exactly(peer: socket.socket, count: int) -> bytes:
    """Read exactly `count` bytes, because the next bytes are the client's."""
    content = b""
    while len(content) < count:
        await trio.lowlevel.wait_readable(peer)
        received = peer.recv(count - len(content))
        if not received:
            raise RemoteProtocolError("the proxy closed the connection before it named its client")
        content += received
    return content
