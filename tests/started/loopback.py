"""The guard that lets a process reach this machine alone: an audit hook, and what it lets through.

An audit hook cannot be gone around from Python (PEP 578): trio's sockets and the resolver pass it
too. Each Python that a test starts reads this first, thousands of them: nothing is imported here
that a bare interpreter has not.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

HERE = ("127.0.0.0/8", "::1/128")
MULTICAST = "239.2.3.1/32"
"""Of TAK, which goes out by the interface that a socket was given: in tests that is the loopback
one, and a kit has `tak-lan` there."""
NAMES = ("", "localhost")
REPORT = "FIELDAGENT_TESTS_LEFT"
"""Names the file in which started programs say what they would have sent."""


class PastLoopback(BaseException):
    """Nothing under test takes it for a failure of the network."""


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
    # An address in any spelling of inet_aton(3): nobody is asked what it means.
    return text not in NAMES and not re.fullmatch(r"[0-9a-fx.:]+(%.*)?", text, re.I)


def _look_at(event: str, address: Any) -> None:
    """Of a Unix socket it is a path; of a socket that is connected there is none."""
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
    # The tests' own process fails by the error alone.
    if __name__ == "loopback" and REPORT in os.environ:
        with open(os.environ[REPORT], "a") as file:  # noqa: PTH123
            file.write(f"{message}, by {' '.join(sys.orig_argv)}\n")
    raise PastLoopback(message)
