"""Measures 512 simultaneous callers. The server must answer each of them. All callers connect at
the same time, because a program can easily answer callers that come one after another.
"""

from __future__ import annotations

import selectors
import socket
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.bench.post import REQUEST
from tests.bench.pushes import admitted, push_request
from tests.bench.table import row
from tests.processes import PATIENCE, agent, hub

CALLERS = 512


def unanswered() -> tuple[int, int]:
    """Return the numbers of unanswered callers of an agent and of a hub."""
    return _by_agent(), _by_hub()


def _by_agent() -> int:
    """Return the count for an agent. Its queue contains exactly the Packages of the served
    callers.
    """
    with (
        tempfile.TemporaryDirectory() as home,
        agent(Path(home), {"satellite-port": "/nonexistent"}) as kit,
    ):
        counts = answers(kit.port, REQUEST % kit.port, CALLERS)
        queued = kit.call("GET", "/api/queue?limit=1").body["queued"]
    assert queued == counts[b"202"], (queued, counts)
    return CALLERS - counts[b"202"] - counts[b"503"]


def _by_hub() -> int:
    with tempfile.TemporaryDirectory() as home:
        database = str(Path(home, "hub.sqlite3"))
        proof = admitted(database)
        with hub(Path(home), {"database": database}) as running:
            counts = answers(running.port, push_request(running.port, proof), CALLERS)
    return CALLERS - counts[b"200"] - counts[b"503"]


def answers(port: int, request: bytes, callers: int) -> Counter[bytes]:
    """Return the number of complete answers by status. A 503 contains the time for the next try."""
    counts: Counter[bytes] = Counter()
    received: dict[socket.socket, bytes] = {}
    deadline = time.monotonic() + PATIENCE
    with selectors.DefaultSelector() as selector:
        for _ in range(callers):
            caller = socket.socket()
            caller.setblocking(False)
            with suppress(BlockingIOError):
                caller.connect(("127.0.0.1", port))
            selector.register(caller, selectors.EVENT_WRITE)
            received[caller] = b""
        while received and time.monotonic() < deadline:
            for key, _ in selector.select(1):
                assert isinstance(key.fileobj, socket.socket)
                peer = key.fileobj
                if key.events == selectors.EVENT_WRITE:
                    selector.modify(peer, selectors.EVENT_READ)
                    with suppress(OSError):
                        peer.sendall(request)
                    continue
                segment = b""
                with suppress(OSError):
                    segment = peer.recv(65_536)
                received[peer] += segment
                if b"\r\n\r\n" not in received[peer] and segment:
                    continue
                head = received.pop(peer).partition(b"\r\n\r\n")[0].lower()
                status = head[9:12]
                assert status != b"503" or b"\r\nretry-after: " in head, head
                counts[status] += 1
                selector.unregister(peer)
                peer.close()
    for caller in received:
        caller.close()
    return counts


def main() -> None:
    """Print the rows."""
    for what, count in zip(("agent", "hub"), unanswered(), strict=True):
        row(f"callers of 512 at once that the {what} left unanswered", count, "<= 0")


if __name__ == "__main__":
    main()
