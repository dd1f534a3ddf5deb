"""Opens a connection and a WebSocket to the hub, and describes failures for people."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import trio

from fieldagent import __version__
from fieldagent.agent.channels.connecting import ServerPlace, Unreachable, open_stream
from fieldagent.agent.channels.contract import LinkState
from fieldagent.http.web_socket import HandshakeRefused, WebSocket, WebSocketClosed, connect
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.link import BODY_BYTES, CHECK_PATH, OVERHEAD_BYTES, PATH

UPGRADE_REQUIRED = 426
"""HTTP status that the hub returns if the token is right but the request is not for a WebSocket
(RFC 9110, 15.5.22)."""
CHECK_TIMEOUT_S = 10.0
"""Seconds within which the hub must close a WebSocket that was opened as a test."""

_PORTS = {"http": 80, "https": 443}
STATUS_GONE = 410
REVOKED_WORDS = (
    "the hub has revoked this kit: the operator of the hub can restore it (device restore)"
)
_BUSY_STATUSES = {408, 429, 500, 502, 503, 504}


class TokenRefused(Unreachable):
    """The hub has responded, but no device has this token."""


@dataclass(frozen=True, slots=True)
class HubAddress:
    """Address and token of the hub, and the interface that reaches it."""

    address: str
    """URL of the hub: https://host[:port], or http:// if the hub runs on this machine."""
    token: str
    ca_file: Path | None = None
    """Certificate authorities to use instead of the system's."""
    interface: str | None = None
    source: str | None = None
    """Local address of the connection. If None, the system chooses the address."""

    @property
    def server(self) -> ServerPlace:
        """Return the host, port and TLS settings of the address. The default port is the port of
        the scheme.
        """
        url = urlsplit(self.address)
        port = url.port or _PORTS[url.scheme]
        secure = url.scheme == "https"
        host = url.hostname or ""
        connection_options = "hub-ca-file", self.ca_file, self.interface, self.source
        return ServerPlace(host, port, secure, *connection_options)


async def open_web_socket(hub: HubAddress, stream: trio.abc.Stream, path: str = PATH) -> WebSocket:
    """Open a WebSocket to the hub over an open `stream`. Raises Unreachable if the hub refuses the
    WebSocket or does not respond.
    """
    url = "ws" + hub.address.removeprefix("http") + path
    headers = {"Authorization": f"Bearer {hub.token}", "User-Agent": f"fieldagent/{__version__}"}
    try:
        return await connect(stream, url, headers, max_size=BODY_BYTES + OVERHEAD_BYTES)
    except HandshakeRefused as refused:
        raise _make_refusal(refused) from refused
    except WebSocketClosed as closed:
        raise Unreachable(LinkState.NO_SERVICE, "the hub closed the connection") from closed


async def probe(hub: HubAddress) -> None:
    """Open a WebSocket as the link does, and check the hub's response. The hub closes this
    WebSocket at once; other links stay open. Raises Unreachable if the hub cannot be reached or
    refuses the kit.
    """
    async with await open_stream(hub.server) as stream:
        socket = await open_web_socket(hub, stream, CHECK_PATH)
        with trio.move_on_after(CHECK_TIMEOUT_S):
            try:
                while True:
                    await socket.receive()
            except WebSocketClosed as closed:
                if not closed.is_broken:
                    return
    text = "the WebSocket opens, but no data arrives: does a proxy hold it back?"
    raise Unreachable(LinkState.FAULT, text)


def _make_refusal(refusal: HandshakeRefused) -> Unreachable:
    if refusal.status == 401:
        return TokenRefused(LinkState.FAULT, "the hub refuses the token: correct hub-token")
    if refusal.status == STATUS_GONE:
        return Unreachable(LinkState.FAULT, REVOKED_WORDS)
    if refusal.status == UPGRADE_REQUIRED:
        fault = (
            "the hub answers, but a proxy removes the header Upgrade (HTTP 426): the hub's"
            " proxy must pass WebSockets at /link; see docs/how-to/hub-tls.md for nginx and others"
        )
    elif refusal.status in _BUSY_STATUSES:
        text = f"the hub cannot take the link now: {refusal}"
        return Unreachable(LinkState.NO_SERVICE, text, refusal.retry_after)
    else:
        fault = f"no hub answers at hub-address, or a proxy blocks it: {refusal}"
    return Unreachable(LinkState.FAULT, fault)
