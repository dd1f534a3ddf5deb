"""Packages accepted durably by the real agent, against uvicorn answering without a disk."""

from __future__ import annotations

import json
import selectors
import socket
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

from tests.bench.http import CONNECTIONS, uvicorn_server
from tests.bench.http import drive as drive_uvicorn
from tests.processes import agent

REQUESTS = 4_000
ROUNDS = 5
REQUEST = (
    b"POST /api/package/async HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
    b"Content-Type: application/json\r\nContent-Length: 38\r\n\r\n"
    b'{"message":{"content":"A small one."}}'
)


class Durable(NamedTuple):
    ratio: float
    """Speed over uvicorn's."""
    commits: float
    """Commits for each accepted Package."""


def durable() -> Durable:
    with tempfile.TemporaryDirectory() as home, agent(Path(home)) as kit:
        with uvicorn_server() as theirs:
            ratios = []
            before = _commits(kit.port)
            for _ in range(ROUNDS):
                own = drive(kit.port, REQUESTS)
                ratios.append(own / drive_uvicorn(theirs, REQUESTS))
        spent = _commits(kit.port) - before
    return Durable(statistics.median(ratios), spent / (ROUNDS * REQUESTS))


def _commits(port: int) -> int:
    with urlopen(f"http://127.0.0.1:{port}/api/status") as answer:
        return int(json.load(answer)["journal"]["commits"])


def drive(port: int, requests: int) -> float:
    """Accepted Packages a second."""
    return accepted(port, REQUEST % port, requests, status=b"202", end=b"}\n")


def accepted(
    port: int,
    request: bytes,
    requests: int,
    *,
    status: bytes,
    end: bytes,
    connections: int = CONNECTIONS,
) -> float:
    """Answers of that status a second, one request under way on each connection.

    `end` is how a whole answer ends.
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
            if not received[peer].startswith(b"HTTP/1.1 " + status):
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


if __name__ == "__main__":
    print(durable())
