"""A TCP connection over one interface, in TLS perhaps, and failures told in words.

Each connection is bound anew, as a binding does not outlive its interface. Where that fails the
attempt has failed: nothing ever goes over another interface. Looking up the name is not bound.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from pathlib import Path

import trio

from fieldagent.agent.channels.contract import LinkState
from fieldagent.http import tls
from fieldagent.http.secure import secured
from fieldagent.system.lazy_named_tuple import NamedTuple

ADDRESS_MAX = 15.0
"""Seconds for one of the addresses that a name may have."""
IP_BIND_ADDRESS_NO_PORT = 24
"""linux/in.h; Python has no name for it before 3.12."""


class Unreachable(Exception):
    """There is no link now; the text says why and, in a FAULT, what to do."""

    def __init__(self, state: LinkState, reason: str, again: float | None = None) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason
        self.again = again
        """Seconds after which a hub that was reached wants to be asked again."""


class ServerPlace(NamedTuple):
    """Where a server is, and how it proves that it is the one."""

    host: str
    port: int
    secure: bool
    ca_setting: str
    """What `ca_file` is called in the settings."""
    ca_file: Path | None = None
    """Instead of the system's authorities."""
    interface: str | None = None
    source: str | None = None
    """An address of this machine to call from; the system chooses one otherwise."""


def trust(server: ServerPlace) -> ssl.SSLContext | None:
    """Return whom to believe that they are the server; None without TLS. Raises Unreachable."""
    try:
        return tls.trust(server.ca_file) if server.secure else None
    except tls.UnusableTrust as unusable:
        raise Unreachable(LinkState.FAULT, f"{server.ca_setting} {unusable}") from unusable


async def open_stream(
    server: ServerPlace, context: ssl.SSLContext | None = None
) -> trio.abc.Stream:
    """Connect; where `server` is secure, in TLS with the server proven to be who it says. `context`
    is what `trust` has returned, for those who connect often. Raises Unreachable."""
    context = context or trust(server)
    if context is None:
        return await _connect(server)
    plain = await _connect(server)
    try:
        return await secured(plain, context, server.host)
    except trio.BrokenResourceError as error:
        if (fault := tls.fault(error.__cause__, server.ca_setting)) is not None:
            raise Unreachable(LinkState.FAULT, fault) from error
        text = "the connection was broken off during the TLS handshake"
        raise Unreachable(LinkState.NO_SERVICE, text) from error


async def _connect(server: ServerPlace) -> trio.SocketStream:
    """Each address in turn, as the system sorts them (RFC 6724)."""
    last = Unreachable(LinkState.NO_SERVICE, f"{server.host} has no address")
    for family, kind, protocol, _, address in await _look_up(server):
        with trio.move_on_after(ADDRESS_MAX):
            try:
                return await _connect_to(server, address, family, kind, protocol)
            except OSError as error:
                why = os.strerror(error.errno).lower() if error.errno else str(error)
                last = Unreachable(LinkState.NO_SERVICE, f"{server.host}: {why}")
            continue
        text = f"{server.host} does not answer within {ADDRESS_MAX:g} s"
        last = Unreachable(LinkState.NO_SERVICE, text)
    raise last


async def _look_up(
    server: ServerPlace,
) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str | int, ...]]]:
    try:
        addresses = await trio.socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no host name"
        text = f"{server.host} is not found: {why}"
        raise Unreachable(LinkState.NO_SERVICE, text) from error
    return list(addresses)  # type: ignore[arg-type]


async def _connect_to(
    server: ServerPlace,
    address: tuple[str | int, ...],
    family: socket.AddressFamily,
    kind: socket.SocketKind,
    protocol: int,
) -> trio.SocketStream:
    sock = trio.socket.socket(family, kind, protocol)
    try:
        if server.interface is not None:
            _bind(sock, server.interface)
        if server.source is not None:
            # No port is taken before the peer is known (ip(7)): each peer leaves all of them.
            sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            await sock.bind((server.source, 0))
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
