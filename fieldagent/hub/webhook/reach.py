"""Connections to the URLs that workspaces configure, except URLs of the hub itself or of the
networks behind it.

A workspace's webhook can have any URL. The hub resolves the host name once, checks each address,
and connects to an address that it has checked. A later change of the DNS entry has no effect.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

import trio

from fieldagent.http.address import Network
from fieldagent.http.client import Opener, RequestFailed
from fieldagent.hub.webhook.special_purpose import MULTICAST, NETWORKS

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

NEXT_ADDRESS_AFTER_S = 0.25
"""Seconds after which the hub tries the next address of a host in parallel."""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""Prefix of IPv4 addresses behind NAT64 (RFC 6052, section 2.1)."""
_UNICAST: dict[int, Network] = {
    4: ipaddress.IPv4Network("0.0.0.0/0"),
    6: ipaddress.IPv6Network("2000::/3"),
}
"""Networks that IANA has assigned for the public internet (RFC 4291, section 2.4)."""
_COMPATIBLE = ipaddress.IPv6Network("::/96")
"""IPv6 addresses that contain an IPv4 address (RFC 4291, section 2.5.5.1)."""


def is_public(address: str, allowed_networks: Sequence[Network] = ()) -> bool:
    """Return True if the address, and each IPv4 address to which it leads, is public or in one of
    `allowed_networks`.
    """
    parsed_address = ipaddress.ip_address(address.partition("%")[0])
    return all(_is_public(each, allowed_networks) for each in _list_meant(parsed_address))


def _is_public(address: Address, allowed_networks: Sequence[Network]) -> bool:
    if any(address in network for network in allowed_networks):
        return True
    if address not in _UNICAST[address.version]:
        return False
    return not any(address in network for network in (*NETWORKS, *MULTICAST))


def _list_meant(address: Address) -> list[Address]:
    """Return the addresses that a connection to `address` may reach: the address itself, unless it
    only stands for an IPv4 address, and the IPv4 addresses in it.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address, address.sixtofour]
    if address.teredo is not None:
        return [address, *address.teredo]
    inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _NAT64:
        return [inner]
    return [address, inner] if address in _COMPATIBLE else [address]


def open_public(allowed_networks: Sequence[Network] = ()) -> Opener:
    """Return a function that connects like `trio.open_tcp_stream`. The function raises
    RequestFailed if an address of the host is neither public nor in `allowed_networks`.
    """

    async def open_stream(host: str, port: int) -> trio.SocketStream:
        entries = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
        for address in addresses:
            if not is_public(address, allowed_networks):
                server_name = host if host == address else f"{host} ({address})"
                raise RequestFailed(
                    f"{server_name} is not a public address: allow private networks with"
                    " webhook-allow in the hub's settings"
                )
        return await _connect_to_first(addresses, port)

    return open_stream


async def _connect_to_first(addresses: Sequence[str], port: int) -> trio.SocketStream:
    """Connect to one of the addresses. Try the next address too if the previous address fails or
    has not responded within `NEXT_ADDRESS_AFTER_S` seconds (RFC 8305, section 5). So a route that
    drops all packets, for example over IPv6, does not use up the time of a request. Raises OSError
    if no address responds.
    """
    streams: list[trio.SocketStream] = []
    failures: list[OSError] = []

    async def attempt(address: str, failure_event: trio.Event) -> None:
        try:
            stream = await trio.open_tcp_stream(address, port)
        except OSError as error:
            failures.append(error)
            failure_event.set()
            return
        streams.append(stream)
        nursery.cancel_scope.cancel()

    try:
        async with trio.open_nursery() as nursery:
            for address in addresses:
                failed = trio.Event()
                nursery.start_soon(attempt, address, failed)
                with trio.move_on_after(NEXT_ADDRESS_AFTER_S):
                    await failed.wait()
    except BaseException:
        for stream in streams:
            await trio.aclose_forcefully(stream)
        raise
    for late in streams[1:]:
        await trio.aclose_forcefully(late)
    if not streams:
        raise failures[0]
    return streams[0]
