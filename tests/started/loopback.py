"""The guard that lets a process reach only this machine: an audit hook and its exceptions.

Python code cannot bypass an audit hook (PEP 578): it also covers trio's sockets and the resolver.
Each Python that a test starts reads this module first, thousands of times. Therefore it imports
only modules that a bare interpreter has loaded.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

HERE = ("127.0.0.0/8", "::1/128")
MULTICAST = "239.2.3.1/32"
"""TAK's multicast address. It uses the interface of the socket, which in tests is the loopback
interface. A kit has `tak-lan` there."""
NAMES = ("", "localhost")
REPORT = "FIELDAGENT_TESTS_LEFT"
"""Environment variable with the file in which started programs report their attempts."""


class PastLoopback(BaseException):
    """Error that code under test does not treat as a network failure."""


def install() -> None:
    sys.addaudithook(_look)


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        _look_at(event, arguments[1])
    elif event == "socket.getaddrinfo" and _asks_others(arguments[0]):
        _refuse(event, arguments[0])


def _asks_others(host: Any) -> bool:
    import re

    text = host.decode("ascii", "replace") if isinstance(host, bytes) else host or ""
    # An address in any form of inet_aton(3), which needs no resolver.
    return text not in NAMES and not re.fullmatch(r"[0-9a-fx.:]+(%.*)?", text, re.I)


def _look_at(event: str, address: Any) -> None:
    """Check an address. For a Unix socket it is a path, and a connected socket has none."""
    if isinstance(address, tuple) and isinstance(address[0], str) and not _is_here(address[0]):
        _refuse(event, address)


def _is_here(host: str) -> bool:
    import ipaddress

    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host in NAMES
    mapped = getattr(address, "ipv4_mapped", None)
    return any(
        (mapped or address) in ipaddress.ip_network(network) for network in (*HERE, MULTICAST)
    )


def _refuse(event: str, where: Any) -> None:
    message = f"a test would leave this machine: {event} {where!r}"
    # The tests' own process fails through the error alone.
    if __name__ == "loopback" and REPORT in os.environ:
        with open(os.environ[REPORT], "a") as file:  # noqa: PTH123
            file.write(f"{message}, by {' '.join(sys.orig_argv)}\n")
    raise PastLoopback(message)
