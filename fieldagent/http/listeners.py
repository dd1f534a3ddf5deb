"""Listening sockets on this machine's own addresses."""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
from collections.abc import Sequence
from pathlib import Path

log = logging.getLogger(__name__)

LOOPBACK = ("127.0.0.1", "::1")
_BACKLOG = 1024
"""Maximum number of connections that wait in the kernel. A further client connects a second later,
when TCP retries."""
_ATTEMPTS = 8
"""Maximum number of attempts to find a port that is free on every address."""
_ABSENT_ERRNOS = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


class ListenFailed(Exception):
    """Error: a port could not be opened. The message contains the port, the reason and the fix."""


class PortTaken(ListenFailed):
    """Error: another program listens on this port."""


def open_listeners(
    port: int, hosts: Sequence[str] = LOOPBACK, *, allow_remote: bool = False
) -> list[socket.socket]:
    """Open listening TCP sockets, all on the same port. Port 0 selects any free port.

    A machine without IPv6 listens on the other addresses. An address outside of loopback needs
    `allow_remote`.
    """
    for host in hosts:
        _check(host, allow_remote)
    for _ in range(_ATTEMPTS - 1 if port == 0 else 0):
        try:
            return _open_all(port, hosts)
        except ListenFailed:
            continue
    return _open_all(port, hosts)


def open_unix_listener(path: Path) -> socket.socket:
    """Open a listening Unix socket for its owner and group. A socket without a listener is
    replaced.

    Raises ListenFailed if another program listens on the socket, or if the socket cannot be made.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    temporary_path = path.with_name(f"{path.name}.new")
    try:
        if _has_listener(path):
            raise PortTaken(f"another program listens on {path}: stop it, or name another path")
        temporary_path.unlink(missing_ok=True)
        listener.setblocking(False)
        listener.bind(str(temporary_path))
        temporary_path.chmod(0o660)
        listener.listen(_BACKLOG)
        temporary_path.rename(path)
    except OSError as error:
        listener.close()
        raise ListenFailed(f"cannot listen on {path}: {error.strerror or error}") from error
    except PortTaken:
        listener.close()
        raise
    return listener


def _has_listener(path: Path) -> bool:
    """Return True if a program listens on the Unix socket at `path`. Raises OSError if `path` is
    something else than a socket.
    """
    if not path.exists():
        return False
    if not path.is_socket():
        raise FileExistsError(errno.EEXIST, "it is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0


def get_port(listeners: Sequence[socket.socket]) -> int:
    """Return the port on which all listeners listen. This is the chosen port if port 0 was
    requested.
    """
    return int(listeners[0].getsockname()[1])


def _check(host: str, allow_remote: bool) -> None:
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise ListenFailed(f"cannot listen on {host!r}: give an IP address") from None
    if not loopback and not allow_remote:
        raise ListenFailed(
            f"will not listen on {host}: the API has no authentication; use 127.0.0.1 or ::1"
        )


def _open_all(port: int, hosts: Sequence[str]) -> list[socket.socket]:
    opened: list[socket.socket] = []
    try:
        for host in hosts:
            listener = _open(host, get_port(opened) if opened else port)
            opened += [listener] if listener else []
    except ListenFailed:
        for listener in opened:
            listener.close()
        raise
    if not opened:
        raise ListenFailed(f"this machine does not have any of the addresses {', '.join(hosts)}")
    return opened


def _open(host: str, port: int) -> socket.socket | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener: socket.socket | None = None
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        if listener is not None:
            listener.close()
        if error.errno in _ABSENT_ERRNOS:
            log.info("This machine has no address %s; not listening there.", host)
            return None
        kind = PortTaken if error.errno == errno.EADDRINUSE else ListenFailed
        raise kind(_describe_listen_error(error, host, port)) from error
    return listener


def _describe_listen_error(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use by another program, perhaps another fieldagent: "
            f"stop it (`ss -ltnp 'sport = :{port}'` shows it) or choose another port"
        )
    if error.errno == errno.EACCES:
        return f"port {port} on {host} needs more rights: choose one above 1023"
    return f"cannot listen on port {port} of {host}: {error.strerror}"
