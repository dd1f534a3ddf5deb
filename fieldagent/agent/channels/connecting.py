"""Opens a TCP connection, with TLS if needed, over one interface, and describes failures for
people.

Each connection is bound to the interface separately, because a binding ends when its interface goes
down. If the binding fails, the attempt fails, so no data ever uses another interface. The DNS
lookup is not bound to the interface.
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
from fieldagent.http.secure import make_secure
from fieldagent.system.lazy_named_tuple import NamedTuple

ADDRESS_TIMEOUT_S = 15.0
"""Longest time in seconds to try one address of a name."""
IP_BIND_ADDRESS_NO_PORT = 24
"""Socket option of linux/in.h; Python has no name for it before 3.12."""


class Unreachable(Exception):
    """Error: the connection cannot be opened now. The message contains the reason and, if `state`
    is FAULT, the remedy.
    """

    def __init__(self, state: LinkState, reason: str, retry_s: float | None = None) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason
        self.again = retry_s
        """Seconds after which the hub, which was reached, asks for the next attempt. None if it
        does not ask for this."""


class ServerPlace(NamedTuple):
    """Address of a server, and how the server proves its identity."""

    host: str
    port: int
    secure: bool
    ca_setting: str
    """Name of the setting that contains `ca_file`."""
    ca_file: Path | None = None
    """Certificate authorities to use instead of the system's."""
    interface: str | None = None
    source: str | None = None
    """Local address of the connection. If None, the system chooses the address."""


def trust(server: ServerPlace) -> ssl.SSLContext | None:
    """Return the TLS context that verifies the server, or None if the server does not use TLS.
    Raises Unreachable if the certificate authorities in `ca_file` cannot be used.
    """
    try:
        return tls.trust(server.ca_file) if server.secure else None
    except tls.UnusableTrust as unusable:
        raise Unreachable(LinkState.FAULT, f"{server.ca_setting} {unusable}") from unusable


async def open_stream(
    server: ServerPlace, context: ssl.SSLContext | None = None
) -> trio.abc.Stream:
    """Connect to `server`. If `server` is secure, use TLS and verify its identity. `context` is the
    result of `trust`. A caller that connects often should pass it. Raises Unreachable if no
    connection is possible.
    """
    context = context or trust(server)
    if context is None:
        return await _connect(server)
    plain = await _connect(server)
    try:
        return await make_secure(plain, context, server.host)
    except trio.BrokenResourceError as error:
        if (fault := tls.describe_fault(error.__cause__, server.ca_setting)) is not None:
            raise Unreachable(LinkState.FAULT, fault) from error
        text = "the connection was broken off during the TLS handshake"
        raise Unreachable(LinkState.NO_SERVICE, text) from error


async def _connect(server: ServerPlace) -> trio.SocketStream:
    """Try each address of the server in the system's order (RFC 6724), and return the first
    connection. Raises Unreachable if no address accepts a connection.
    """
    last = Unreachable(LinkState.NO_SERVICE, f"{server.host} has no address")
    for family, kind, protocol, _, address in await _resolve_host(server):
        with trio.move_on_after(ADDRESS_TIMEOUT_S):
            try:
                return await _connect_to(server, address, family, kind, protocol)
            except OSError as error:
                reason = os.strerror(error.errno).lower() if error.errno else str(error)
                last = Unreachable(LinkState.NO_SERVICE, f"{server.host}: {reason}")
            continue
        text = f"{server.host} does not answer within {ADDRESS_TIMEOUT_S:g} s"
        last = Unreachable(LinkState.NO_SERVICE, text)
    raise last


async def _resolve_host(
    server: ServerPlace,
) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str | int, ...]]]:
    try:
        addresses = await trio.socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a host name"
        text = f"{server.host} is not found: {reason}"
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
            # Let the kernel choose the port at the connect (ip(7)), so that all ports can be used
            # for each peer.
            sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            await sock.bind((server.source, 0))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await sock.connect(address)
        return trio.SocketStream(sock)
    except BaseException:
        sock.close()
        raise


def _bind(sock: trio.socket.SocketType, interface: str) -> None:
    """Restrict the socket to `interface` (SO_BINDTODEVICE, socket(7)). Raises Unreachable, for
    example if the interface does not exist.
    """
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0")
    except OSError as error:
        if error.errno == errno.ENODEV:
            text = f"interface {interface} not found: check that the modem is connected and set up"
            raise Unreachable(LinkState.ABSENT, text) from error
        text = f"cannot bind to {interface}: {error.strerror}"
        if error.errno == errno.EPERM:
            text += "; kernels before 5.7 need CAP_NET_RAW"
        raise Unreachable(LinkState.FAULT, text) from error
