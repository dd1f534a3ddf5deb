"""The way to the hub: a TCP connection over one interface, TLS, and failures told in words.

Each connection is bound anew, as a binding does not outlive its interface. Where that fails the
attempt has failed: nothing ever goes over another interface. Looking up the name is not bound.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import trio

from fieldagent import __version__
from fieldagent.agent.channels.contract import LinkState
from fieldagent.http import tls
from fieldagent.http.secure import secured
from fieldagent.http.web_socket import Closed, HandshakeRefused, WebSocket, connect
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.link import BODY_BYTES, CHECK_PATH, OVERHEAD, PATH

ADDRESS_MAX = 15.0
"""Seconds for one of the addresses that a name may have."""

UPGRADE_REQUIRED = 426
"""What the hub says to one who has the right token and wants no WebSocket (RFC 9110 15.5.22)."""
CHECK_MAX = 10.0
"""Seconds in which the hub closes a WebSocket that was opened to see whether that works."""

IP_BIND_ADDRESS_NO_PORT = 24
"""linux/in.h; Python has no name for it before 3.12."""

_PORTS = {"http": 80, "https": 443}
_BUSY = {408, 429, 500, 502, 503, 504}


class Unreachable(Exception):
    """There is no link now; the text says why and, in a FAULT, what to do."""

    def __init__(self, state: LinkState, reason: str, again: float | None = None) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason
        self.again = again
        """Seconds after which a hub that was reached wants to be asked again."""


class TokenRefused(Unreachable):
    """The hub is there, and no device of it has the token."""


@dataclass(frozen=True, slots=True)
class HubAddress:
    """Where the hub is, what it wants to see, and over what it is reached."""

    address: str
    """https://host[:port]; http:// to this machine alone."""
    token: str
    ca_file: Path | None = None
    """Instead of the system's authorities."""
    interface: str | None = None
    source: str | None = None
    """An address of this machine to call from; the system chooses one otherwise."""

    @property
    def host(self) -> str:
        return urlsplit(self.address).hostname or ""

    @property
    def port(self) -> int:
        where = urlsplit(self.address)
        return where.port or _PORTS[where.scheme]

    @property
    def secure(self) -> bool:
        return urlsplit(self.address).scheme == "https"


def trust(hub: HubAddress) -> ssl.SSLContext | None:
    """Return whom to believe that they are the hub; None without TLS. Raises Unreachable."""
    try:
        return tls.trust(hub.ca_file) if hub.secure else None
    except tls.UnusableTrust as unusable:
        raise Unreachable(LinkState.FAULT, f"hub-ca-file {unusable}") from unusable


async def open_stream(hub: HubAddress, context: ssl.SSLContext | None = None) -> trio.abc.Stream:
    """Connected, and in TLS with the hub proven to be who it says. `context` is what `trust` has
    returned, for those who connect often. Raises Unreachable."""
    context = context or trust(hub)
    if context is None:
        return await _connect(hub)
    plain = await _connect(hub)
    try:
        return await secured(plain, context, hub.host)
    except trio.BrokenResourceError as error:
        if (fault := tls.fault(error.__cause__, "hub-ca-file")) is not None:
            raise Unreachable(LinkState.FAULT, fault) from error
        text = "the connection was broken off during the TLS handshake"
        raise Unreachable(LinkState.NO_SERVICE, text) from error


async def open_web_socket(hub: HubAddress, stream: trio.abc.Stream, path: str = PATH) -> WebSocket:
    """The handshake with the hub itself. Raises Unreachable."""
    url = "ws" + hub.address.removeprefix("http") + path
    headers = {"Authorization": f"Bearer {hub.token}", "User-Agent": f"fieldagent/{__version__}"}
    try:
        return await connect(stream, url, headers, max_size=BODY_BYTES + OVERHEAD)
    except HandshakeRefused as refused:
        raise _refusal(refused) from refused
    except Closed as closed:
        raise Unreachable(LinkState.NO_SERVICE, "the hub broke the connection off") from closed


async def probe(hub: HubAddress) -> None:
    """Open a WebSocket as the link does, which the hub closes at once: it ends no other link.
    Raises Unreachable."""
    async with await open_stream(hub) as stream:
        socket = await open_web_socket(hub, stream, CHECK_PATH)
        with trio.move_on_after(CHECK_MAX):
            try:
                while True:
                    await socket.receive()
            except Closed as closed:
                if not closed.broke_off:
                    return
    text = "the WebSocket opens, and nothing comes through it: does something between hold it back?"
    raise Unreachable(LinkState.FAULT, text)


def _refusal(refused: HandshakeRefused) -> Unreachable:
    if refused.status == 401:
        return TokenRefused(LinkState.FAULT, "the hub refuses the token: correct hub-token")
    if refused.status == UPGRADE_REQUIRED:
        what = (
            "the hub is there, but something between takes the header Upgrade away (HTTP 426): its"
            " proxy must pass WebSockets at /link, as docs/hub.md has it for nginx and others"
        )
    elif refused.status in _BUSY:
        text = f"the hub cannot take the link now: {refused}"
        return Unreachable(LinkState.NO_SERVICE, text, refused.retry_after)
    else:
        what = f"there is no hub at hub-address, or something between: {refused}"
    return Unreachable(LinkState.FAULT, what)


async def _connect(hub: HubAddress) -> trio.SocketStream:
    """Each address in turn, as the system sorts them (RFC 6724)."""
    last = Unreachable(LinkState.NO_SERVICE, f"{hub.host} has no address")
    for family, kind, protocol, _, address in await _look_up(hub):
        with trio.move_on_after(ADDRESS_MAX):
            try:
                return await _connect_to(hub, address, family, kind, protocol)
            except OSError as error:
                why = os.strerror(error.errno).lower() if error.errno else str(error)
                last = Unreachable(LinkState.NO_SERVICE, f"{hub.host}: {why}")
            continue
        text = f"{hub.host} does not answer within {ADDRESS_MAX:g} s"
        last = Unreachable(LinkState.NO_SERVICE, text)
    raise last


async def _look_up(
    hub: HubAddress,
) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str | int, ...]]]:
    try:
        found = await trio.socket.getaddrinfo(hub.host, hub.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no host name"
        text = f"{hub.host} is not found: {why}"
        raise Unreachable(LinkState.NO_SERVICE, text) from error
    return list(found)  # type: ignore[arg-type]


async def _connect_to(
    hub: HubAddress,
    address: tuple[str | int, ...],
    family: socket.AddressFamily,
    kind: socket.SocketKind,
    protocol: int,
) -> trio.SocketStream:
    sock = trio.socket.socket(family, kind, protocol)
    try:
        if hub.interface is not None:
            _bind(sock, hub.interface)
        if hub.source is not None:
            # No port is taken before the peer is known (ip(7)): each peer leaves all of them.
            sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            await sock.bind((hub.source, 0))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await sock.connect(address)
        return trio.SocketStream(sock)
    except BaseException:
        sock.close()
        raise


def _bind(sock: trio.socket.SocketType, interface: str) -> None:
    """socket(7). Raises Unreachable."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0")
    except OSError as error:
        if error.errno == errno.ENODEV:
            text = f"there is no interface {interface}: is the modem plugged in and set up?"
            raise Unreachable(LinkState.ABSENT, text) from error
        text = f"nothing may be bound to {interface}: {error.strerror}"
        if error.errno == errno.EPERM:
            text += "; kernels before 5.7 ask for CAP_NET_RAW"
        raise Unreachable(LinkState.FAULT, text) from error
