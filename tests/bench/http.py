"""POST throughput against uvicorn with h11: the same load on both, by turns.

Run as `python -m tests.bench.http`. Times differ between machines and moments; the ratio is what
counts, and it is the median over the rounds.
"""

from __future__ import annotations

import re
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

CONNECTIONS = 16
REQUESTS = 6_000
"""In one round, over all connections."""
ROUNDS = 7

_BODY = b'{"message":{"content":"A small one."}}'
_REQUEST = (
    b"POST /api/package HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: bench\r\nAccept: */*\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
)

_OURS = """
from functools import partial
import trio
from fieldagent.http.guard import loopback_guard
from fieldagent.http.listeners import open_listeners, port_of
from fieldagent.http.message import Admission, Response
from fieldagent.http.server import serve

async def answer(request):
    return Response(200, b"{}")

async def judge(head):
    return Admission(answer)

listeners = open_listeners(0, ("127.0.0.1",))
port = port_of(listeners)
print("http://127.0.0.1:%d" % port, flush=True)
trio.run(partial(serve, judge, listeners, guard=loopback_guard, stopping=trio.Event()))
"""

_UVICORN = ["--http", "h11", "--loop", "asyncio", "--no-access-log", "--port", "0"]


async def uvicorn_app(scope, receive, send):  # type: ignore[no-untyped-def]
    """The same answer as an ASGI application, its body read as a real one's would be."""
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})


@contextmanager
def _server(*command: str) -> Iterator[int]:
    """A server's process; its port, as soon as it has told it."""
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if told := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                yield int(told[1])
                return
        raise RuntimeError(f"{command[:2]} ended before it listened")
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def uvicorn_server() -> Iterator[int]:
    with _server("-m", "uvicorn", "tests.bench.http:uvicorn_app", *_UVICORN) as port:
        yield port


def drive(port: int, requests: int, connections: int = CONNECTIONS) -> float:
    """Requests a second, with one request under way on each connection."""
    request = _REQUEST % (port, len(_BODY), _BODY)
    peers = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    try:
        size = _answer_size(peers[0], request)
        with selectors.DefaultSelector() as selector:
            for peer in peers:
                selector.register(peer, selectors.EVENT_READ)
            return requests / _exchange(selector, peers, request, size, requests)
    finally:
        for peer in peers:
            peer.close()


def _answer_size(peer: socket.socket, request: bytes) -> int:
    """Of the first answer, which must be a good one: all others are as large."""
    peer.sendall(request)
    answer = b""
    while not answer.endswith(b"{}"):
        answer += peer.recv(65_536)
    if not answer.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"unexpected answer: {answer!r}")
    return len(answer)


def _exchange(
    selector: selectors.BaseSelector,
    peers: list[socket.socket],
    request: bytes,
    size: int,
    requests: int,
) -> float:
    begin = time.perf_counter()
    for peer in peers:
        peer.sendall(request)
    sent, answered = len(peers), 0
    by_number = {peer.fileno(): peer for peer in peers}
    missing = dict.fromkeys(peers, size)
    while answered < requests:
        for key, _ in selector.select():
            peer = by_number[key.fd]
            received = len(peer.recv(65_536))
            if not received:
                raise RuntimeError("the server closed a connection")
            missing[peer] -= received
            if missing[peer] == 0:
                answered += 1
                missing[peer] = size
                if sent < requests:
                    sent += 1
                    peer.sendall(request)
    return time.perf_counter() - begin


def throughput(rounds: int = ROUNDS) -> tuple[float, float, float]:
    """Requests a second, ours and uvicorn's, and the ratio: medians over `rounds` by turns."""
    with _server("-c", _OURS) as ours, uvicorn_server() as theirs:
        for port in (ours, theirs):
            drive(port, REQUESTS // 4)
        pairs = [(drive(ours, REQUESTS), drive(theirs, REQUESTS)) for _ in range(rounds)]
    own, other = zip(*pairs, strict=True)
    speed = statistics.median(a / b for a, b in pairs)
    return statistics.median(own), statistics.median(other), speed


def ratio() -> float:
    return throughput()[2]


if __name__ == "__main__":
    own, other, speed = throughput()
    print(f"POST, {CONNECTIONS} connections: {own:.0f}/s, uvicorn with h11 {other:.0f}/s")
    print(f"ratio {speed:.2f} (goal 0.9)")
