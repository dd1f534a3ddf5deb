"""Addresses of peers, and their networks."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LOOPBACK_NETWORKS: tuple[Network, ...] = (
    ipaddress.IPv4Network("127.0.0.0/8"),
    ipaddress.IPv6Network("::1/128"),
)

_SOURCE_CHARACTERS = 64
"""Maximum number of characters of an address. Longer addresses are cut, because a proxy may send
any text."""


def find_source(address: str) -> str:
    """Return the source to which an address belongs, for limits per source. For IPv6, the source is
    the /64 network, because a single user can get all addresses of a /64 (RFC 6177).
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:_SOURCE_CHARACTERS]
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))


def is_in(address: str, networks: Sequence[Network]) -> bool:
    """Return True if an address is in one of the networks. Return False if the text is not an IP
    address.
    """
    try:
        return any(ipaddress.ip_address(address) in network for network in networks)
    except ValueError:
        return False
