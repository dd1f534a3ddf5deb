"""Sees that no test sends anything past this machine, whatever the code under test believes.

An audit hook cannot be gone around from Python (PEP 578): trio's sockets and the resolver pass it
too. It is in the process of the tests, and in each Python that they start: `started/` is first in
its path. What a started program would have sent ends that program and fails the test. Programs of
others (a browser, a TNC) are given addresses of this machine.
"""

from __future__ import annotations

import ipaddress
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
MULTICAST = ipaddress.ip_network("239.2.3.1/32")
"""Of TAK, which goes out by the interface that a socket was given: in tests that is the loopback
one, and a kit has `tak-lan` there."""
NAMES = ("", "localhost")
REPORT = "FIELDAGENT_TESTS_LEFT"
"""Names the file in which started programs say what they would have sent."""
STARTED = Path(__file__).with_name("started")
_made_here: list[Path] = []
_NUMERIC = re.compile(r"[0-9a-fx.:]+(%.*)?", re.IGNORECASE)
"""An address in any spelling of inet_aton(3): nobody is asked what it means."""


class PastLoopback(BaseException):
    """Nothing under test takes it for a failure of the network."""


def install() -> None:
    sys.addaudithook(_look)


def hold_what_is_started() -> None:
    """From here on, each Python that this process starts."""
    os.environ["PYTHONPATH"] = path(os.environ.get("PYTHONPATH", ""))
    file, os.environ[REPORT] = tempfile.mkstemp(prefix="fieldagent-left-")
    # Some of them run as other users.
    _made_here.append(Path(os.environ[REPORT]))
    os.fchmod(file, 0o666)
    os.close(file)


def path(folders: str) -> str:
    """Return them as a PYTHONPATH that holds what is started with it."""
    return ":".join(filter(None, [str(STARTED), folders]))


def left() -> str:
    """Return what started programs would have sent since the last call, a line each."""
    report = Path(os.environ[REPORT])
    if not report.stat().st_size:
        return ""
    told = report.read_text()
    report.write_text("")
    return told


def forget() -> None:
    """At the end of the tests."""
    for report in _made_here:
        report.unlink()


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        _look_at(event, arguments[1])
    elif event == "socket.getaddrinfo" and _asks_others(arguments[0]):
        _refuse(event, arguments[0])


def _asks_others(host: Any) -> bool:
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else host or ""
    return text not in NAMES and not _NUMERIC.fullmatch(text)


def _look_at(event: str, address: Any) -> None:
    """Of a Unix socket it is a path; of a socket that is connected there is none."""
    if isinstance(address, tuple) and isinstance(address[0], str) and not _is_here(address[0]):
        _refuse(event, address)


def _is_here(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host in NAMES
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in (*HERE, MULTICAST))


def _refuse(event: str, where: Any) -> None:
    told = f"a test would leave this machine: {event} {where!r}"
    if __name__ == STARTED.name and REPORT in os.environ:
        with Path(os.environ[REPORT]).open("a") as file:
            file.write(f"{told}, by {' '.join(sys.orig_argv)}\n")
    raise PastLoopback(told)
