"""Sockets on which the hub accepts connections of people, kits and proxies."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from fieldagent.http.address import find_source
from fieldagent.http.limits import CpuPace
from fieldagent.http.listeners import open_listeners, open_unix_listener
from fieldagent.hub.access import sessions
from fieldagent.hub.access.caller import find_address
from fieldagent.hub.access.known_devices import KnownDevices
from fieldagent.hub.settings import HubSettings
from fieldagent.system.lazy_named_tuple import NamedTuple


class Listeners(NamedTuple):
    direct: list[socket.socket]
    by_socket: list[socket.socket]
    """Unix sockets on which a proxy on this machine connects."""
    by_proxy: list[socket.socket]
    """Sockets for proxies that report the address of their client."""


def open_all_listeners(settings: HubSettings) -> Listeners:
    """Open all listeners of a hub. Raises ListenFailed."""
    with ExitStack() as listeners:

        def open_sockets(sockets: list[socket.socket]) -> list[socket.socket]:
            for each in sockets:
                listeners.callback(each.close)
            return sockets

        direct = open_sockets(open_listeners(settings.port, settings.listen, allow_remote=True))
        by_proxy: list[socket.socket] = []
        if settings.proxy_listen is not None:
            host, port = settings.proxy_listen
            by_proxy = open_sockets(open_listeners(port, [host], allow_remote=True))
        path = settings.socket_listen
        by_socket = [] if path is None else open_sockets([open_unix_listener(path)])
        listeners.pop_all()
    return Listeners(direct, by_socket, by_proxy)


PROBES = ("/healthz", "/livez")


def make_pace(settings: HubSettings, devices: KnownDevices) -> CpuPace:
    """Return the limits on the CPU time that each caller may use."""
    proxies = settings.trusted_proxies
    return CpuPace(
        cookie=sessions.COOKIE,
        probes=PROBES,
        proxies=proxies,
        source=lambda head: find_source(find_address(head, proxies)),
        voucher=devices.find_pace_key,
    )
