"""Measures a push with CONSOLES open event streams, as a ratio to a push without them.
Without pushes the streams would cost nothing.

Run it as `python -m tests.bench.consoles`. One caller sends one push after the other, alternately
with and without the streams, each on a separate database.
"""

from __future__ import annotations

import socket
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.bench.process import processor
from tests.bench.pushes import Proof, admitted, push_request
from tests.bench.table import row
from tests.postgres import new_database, server
from tests.processes import PATIENCE, Hub, administer, hub

CONSOLES = 200
PUSHES = 100
ROUNDS = 5
PACE = 0.02
"""Seconds between two pushes."""


class Watched(NamedTuple):
    latency: float
    """Latency of a push, as a ratio to a push without streams: medians."""
    processor: float
    """Share of one processor core that the hub uses for all streams."""


def watched(database: str) -> Watched:
    proof = admitted(database)
    reader = administer(database, "key", "add", "desk", "--read")["apiKey"]
    alone: list[float] = []
    seen: list[float] = []
    busy = []
    with tempfile.TemporaryDirectory() as home, hub(Path(home), {"database": database}) as running:
        request = push_request(running.port, proof)
        for _ in range(ROUNDS):
            alone_cpu = _push(running, request, alone)
            with ExitStack() as streams:
                for _ in range(CONSOLES):
                    streams.enter_context(_listen(running.port, Proof(reader, proof.token)))
                _push(running, request, [])
                busy.append(_push(running, request, seen) - alone_cpu)
    return Watched(statistics.median(seen) / statistics.median(alone), statistics.median(busy))


def _listen(port: int, proof: Proof) -> socket.socket:
    """Open a stream. It reads no more: the data is small and waits in the kernel."""
    stream = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    stream.sendall(
        f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nx-api-key: {proof.key}\r\n"
        f"Authorization: Bearer {proof.token}\r\n\r\n".encode()
    )
    head = b""
    while b"\r\n\r\n" not in head:
        head += stream.recv(4096)
    assert head.startswith(b"HTTP/1.1 200"), head
    return stream


def _push(running: Hub, request: bytes, latencies: list[float]) -> float:
    """Return the part of one core that the hub used."""
    begun, used = time.monotonic(), processor(running.process.pid)
    with socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE) as caller:
        for _ in range(PUSHES):
            asked = time.perf_counter()
            caller.sendall(request)
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += caller.recv(4096)
            assert answer.startswith(b"HTTP/1.1 200"), answer
            latencies.append(time.perf_counter() - asked)
            time.sleep(PACE)
    return (processor(running.process.pid) - used) / (time.monotonic() - begun)


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        _print("SQLite", watched(str(Path(home, "hub.sqlite3"))))
    with server(durable=True) as running:
        _print("PostgreSQL", watched(new_database(running.address)))


def _print(database: str, result: Watched) -> None:
    row(f"{database}, a push while {CONSOLES} watch, over nobody", result.latency, "<= 1.2")
    row(f"  {CONSOLES} who watch 50 pushes a second, of a core", result.processor)


if __name__ == "__main__":
    main()
