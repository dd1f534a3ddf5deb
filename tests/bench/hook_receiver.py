"""A webhook's receiver as a separate process, with a delay for each post.

Run it as `python -m tests.bench.hook_receiver SECONDS`: it prints its URL. `GET` returns the
numbers of posts, items and connections.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar
from urllib.request import urlopen

from tests.processes import Running


class Receiver(asyncio.Protocol):
    """A connection."""

    got: ClassVar[Counter[str]] = Counter()
    seconds: ClassVar[float] = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.buffer, self.known = transport, b"", False

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, blank, rest = self.buffer.partition(b"\r\n\r\n")
        if not blank:
            return
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        if len(rest) < length:
            return
        self.buffer = rest[length:]
        if head.startswith(b"GET"):
            body = json.dumps(self.got).encode()
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            return
        self.got["connections"] += not self.known
        self.known = True
        self.got["posts"] += 1
        self.got["items"] += rest[:length].count(b'"requestId"')
        asyncio.get_running_loop().call_later(self.seconds, self.answer)

    def answer(self) -> None:
        self.transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")


class RunningReceiver:
    def __init__(self, url: str) -> None:
        self.url = url

    def got(self) -> Counter[str]:
        with urlopen(self.url) as answer:
            return Counter(json.load(answer))


@contextmanager
def receiver(seconds: float) -> Iterator[RunningReceiver]:
    command = [sys.executable, "-m", "tests.bench.hook_receiver", str(seconds)]
    with Running(command, "http://127.0.0.1:") as running:
        yield RunningReceiver(running.ready.strip())


async def _receive() -> None:
    server = await asyncio.get_running_loop().create_server(Receiver, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    Receiver.seconds = float(sys.argv[1])
    asyncio.run(_receive())
