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

SPECIAL_NETWORKS: tuple[Network, ...] = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private use
            "100.64.0.0/10",  # shared by a carrier's customers
            "127.0.0.0/8",  # loopback
            "169.254.0.0/16",  # link local, with cloud metadata services (secrets)
            "172.16.0.0/12",  # private use
            "192.0.0.0/24",  # IETF protocol assignments, with DS-Lite, PCP and TURN anycast
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112-v4
            "192.52.193.0/24",  # AMT
            "192.88.99.0/24",  # 6to4 relays, no longer in use
            "192.168.0.0/16",  # private use
            "192.175.48.0/24",  # direct delegation of AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "240.0.0.0/4",  # reserved, with the limited broadcast
            "::/128",  # unspecified
            "::1/128",  # loopback
            "::ffff:0:0/96",  # IPv4-mapped
            "64:ff9b::/96",  # NAT64, RFC 6052
            "64:ff9b:1::/48",  # NAT64 local to a site, RFC 8215
            "100::/64",  # discard only
            "100:0:0:1::/64",  # dummy prefix
            "2001::/23",  # IETF protocol assignments, with Teredo, ORCHID and drone identities
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4
            "2620:4f:8000::/48",  # direct delegation of AS112
            "3fff::/20",  # documentation
            "5f00::/16",  # segment routing
            "fc00::/7",  # unique local
            "fe80::/10",  # link local
        ),
    )
)
"""Networks in IANA's special-purpose address registries, complete.

Sources: https://www.iana.org/assignments/iana-ipv4-special-registry and
https://www.iana.org/assignments/iana-ipv6-special-registry (RFC 6890, 8190), both as last updated
on 2025-10-09. A row within another row, such as 192.0.0.9/32, is not repeated. Globally reachable
rows are included, because webhooks do not run there. An address that leads to an IPv4 address is
judged by that IPv4 address. The standard library's `is_global` covers some of these networks,
depending on Python's version.
"""
MULTICAST: tuple[Network, ...] = (
    ipaddress.IPv4Network("224.0.0.0/4"),
    ipaddress.IPv6Network("ff00::/8"),
)
"""Networks with separate registries: RFC 5771 and RFC 4291, section 2.7."""


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
    return not any(address in network for network in (*SPECIAL_NETWORKS, *MULTICAST))


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
