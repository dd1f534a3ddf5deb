"""Calls a server with one request at a time on each connection, and measures the cost."""

from __future__ import annotations

import selectors
import socket
import time
from typing import NamedTuple

from tests.bench.process import processor

CONNECTIONS = 16


class Cost(NamedTuple):
    speed: float
    """Answers per second."""
    processor: float
    """Processor seconds of the server per answer."""


def cost(port: int, pid: int, request: bytes, requests: int, *, status: bytes, end: bytes) -> Cost:
    """Send requests as `accepted` does, and return their cost for the server process `pid`."""
    before = processor(pid)
    speed = accepted(port, request, requests, status=status, end=end)
    return Cost(speed, (processor(pid) - before) / requests)


def accepted(
    port: int,
    request: bytes,
    requests: int,
    *,
    status: bytes,
    end: bytes,
    connections: int = CONNECTIONS,
) -> float:
    """Return the answers with that status per second. `status` is the beginning of an answer, and
    `end` its end.
    """
    peers = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    selector = selectors.DefaultSelector()
    received = dict.fromkeys(peers, b"")
    for each in peers:
        selector.register(each, selectors.EVENT_READ)
    began = time.perf_counter()
    for each in peers:
        each.sendall(request)
    sent, answered = len(peers), 0
    while answered < requests:
        for key, _ in selector.select():
            peer = key.fileobj
            assert isinstance(peer, socket.socket)
            received[peer] += peer.recv(65_536)
            if not received[peer].endswith(end):
                continue
            if not received[peer].startswith(status):
                raise RuntimeError(received[peer].decode())
            received[peer] = b""
            answered += 1
            if sent < requests:
                sent += 1
                peer.sendall(request)
    took = time.perf_counter() - began
    selector.close()
    for each in peers:
        each.close()
    return requests / took
