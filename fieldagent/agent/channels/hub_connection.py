"""The way to the hub: a TCP connection over one interface, TLS, and failures told in words.

Each connection is bound anew, as a binding does not outlive its interface. Where that fails the
attempt has failed: nothing ever goes over another interface. Looking up the name is not bound.
"""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import h11
import trio

from fieldagent import __version__
from fieldagent.agent.channels.contract import LinkState
from fieldagent.http import tls
from fieldagent.http.secure import secured
from fieldagent.http.web_socket import Closed, HandshakeRefused, WebSocket, connect
from fieldagent.wire.link import BODY_BYTES, OVERHEAD, PATH

ADDRESS_MAX = 15.0
"""Seconds for one of the addresses that a name may have."""

UPGRADE_REQUIRED = 426
"""What the hub says to one who has the right token and wants no WebSocket (RFC 9110 15.5.22)."""

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


@dataclass(frozen=True, slots=True)
class HubAddress:
    """Where the hub is, what it wants to see, and over what it is reached."""

    address: str
    """https://host[:port]; http:// to this machine alone."""
    token: str
    ca_file: Path | None = None
    """Instead of the system's authorities."""
    interface: str | None = None

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


async def open_stream(hub: HubAddress) -> trio.abc.Stream:
    """Connected, and in TLS with the hub proven to be who it says. Raises Unreachable."""
    if not hub.secure:
        return await _connect(hub)
    try:
        context = tls.trust(hub.ca_file)
    except tls.UnusableTrust as unusable:
        raise Unreachable(LinkState.FAULT, f"hub-ca-file {unusable}") from unusable
    plain = await _connect(hub)
    try:
        return await secured(plain, context, hub.host)
    except trio.BrokenResourceError as error:
        if (fault := tls.fault(error.__cause__, "hub-ca-file")) is not None:
            raise Unreachable(LinkState.FAULT, fault) from error
        text = "the connection was broken off during the TLS handshake"
        raise Unreachable(LinkState.NO_SERVICE, text) from error


async def open_web_socket(hub: HubAddress, stream: trio.abc.Stream) -> WebSocket:
    """The handshake with the hub itself. Raises Unreachable."""
    url = "ws" + hub.address.removeprefix("http") + PATH
    headers = {"Authorization": f"Bearer {hub.token}", "User-Agent": f"fieldagent/{__version__}"}
    try:
        return await connect(stream, url, headers, max_size=BODY_BYTES + OVERHEAD)
    except HandshakeRefused as refused:
        raise _refusal(refused) from refused
    except Closed as closed:
        raise Unreachable(LinkState.NO_SERVICE, "the hub broke the connection off") from closed


async def probe(hub: HubAddress) -> None:
    """Ask whether the hub would take the link, and open none. Raises Unreachable."""
    protocol = h11.Connection(h11.CLIENT)
    authority = urlsplit(hub.address).netloc
    headers = {"Host": authority, "Authorization": f"Bearer {hub.token}", "Connection": "close"}
    question = protocol.send(h11.Request(method="GET", target=PATH, headers=list(headers.items())))
    async with await open_stream(hub) as stream:
        try:
            await stream.send_all(question or b"")
            while (event := protocol.next_event()) is h11.NEED_DATA:
                protocol.receive_data(bytes(await stream.receive_some()))
        except (h11.RemoteProtocolError, trio.BrokenResourceError) as error:
            raise _refusal(HandshakeRefused(0, "what answers speaks no HTTP")) from error
    status = event.status_code if isinstance(event, h11.Response) else 0
    if status != UPGRADE_REQUIRED:
        raise _refusal(
            HandshakeRefused(status, HTTPStatus(status).phrase if status else "no answer")
        )


def _refusal(refused: HandshakeRefused) -> Unreachable:
    if refused.status == 401:
        what = "the hub refuses the token: correct hub-token"
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
                return await _connect_to(address, family, kind, protocol, hub.interface)
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
    address: tuple[str | int, ...],
    family: socket.AddressFamily,
    kind: socket.SocketKind,
    protocol: int,
    interface: str | None,
) -> trio.SocketStream:
    sock = trio.socket.socket(family, kind, protocol)
    try:
        if interface is not None:
            _bind(sock, interface)
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
