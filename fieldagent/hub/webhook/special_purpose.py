"""Networks in IANA's special-purpose address registries, complete.

Sources: https://www.iana.org/assignments/iana-ipv4-special-registry and
https://www.iana.org/assignments/iana-ipv6-special-registry (RFC 6890, 8190), both as last updated
on 2025-10-09. A row within another row, such as 192.0.0.9/32, is not repeated. Globally reachable
rows are included, because webhooks do not run there. An address that leads to an IPv4 address is
judged by that IPv4 address (`reach.py`). The standard library's `is_global` covers some of these
networks, depending on Python's version.
"""

from __future__ import annotations

import ipaddress

from fieldagent.http.address import Network

NETWORKS: tuple[Network, ...] = tuple(
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
MULTICAST: tuple[Network, ...] = (
    ipaddress.IPv4Network("224.0.0.0/4"),
    ipaddress.IPv6Network("ff00::/8"),
)
"""Networks with separate registries: RFC 5771 and RFC 4291, section 2.7."""
