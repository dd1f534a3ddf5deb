"""Measures one push to everyone in a workspace with a thousand linked kits. With few linked kits,
or up to the answer alone, it looks many times cheaper.

Run it as `python -m tests.bench.fan_out [KITS [ENGINES]]`. The database is a minute old. It shows
the time from the request until the last kit has the item, and the processor time and statements for
a delivery. Each kit confirms at once, and its user's receipt is stored.
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import trio

from fieldagent.agent.channels.connecting import open_stream
from fieldagent.agent.channels.hub_connection import HubAddress, open_web_socket
from fieldagent.http.web_socket import WebSocket
from fieldagent.hub.store.opening import is_postgres
from fieldagent.wire.link import IpLink, LinkHello, MessageReceived
from tests.bench.inbound import kits_of_users
from tests.bench.process import family_processor, processor
from tests.bench.pushes import admitted, push_request, statements
from tests.bench.table import row
from tests.postgres import Server, new_database, server
from tests.processes import hub, started

KITS = 1_000
ENGINES = "SQLite,PostgreSQL"
PUSHES = 7
REST = 1.0
"""Seconds after each push in which its receipts are settled."""


class Kits:
    """The kits' ends of all links, which report when each kit has received an item."""

    def __init__(self, kits: int) -> None:
        self._kits = kits
        self._waiting = kits

    async def run(self, web_socket: WebSocket) -> None:
        link = IpLink(LinkHello())
        await web_socket.send(link.make_hello())
        link.receive(await web_socket.receive())
        while True:
            event = link.receive(await web_socket.receive())
            if isinstance(event, MessageReceived):
                self._waiting -= 1
                if not self._waiting:
                    self._waiting = self._kits
                    print(time.time(), flush=True)
                await web_socket.send(link.acknowledge(event.number))


async def _hold(address: str, tokens: list[str]) -> None:
    kits = Kits(len(tokens))
    turns, linked = trio.CapacityLimiter(50), 0

    async def one(token: str) -> None:
        nonlocal linked
        connection = HubAddress(address, token)
        async with turns:
            web_socket = await open_web_socket(connection, await open_stream(connection.server))
        linked += 1
        await kits.run(web_socket)

    async with trio.open_nursery() as nursery:
        for token in tokens:
            nursery.start_soon(one, token)
        while linked < len(tokens):
            await trio.sleep(0.05)
        await trio.sleep(2)  # Wait until the links have exchanged their first messages.
        print("linked", flush=True)


class FanOut(NamedTuple):
    seconds: float
    """Seconds from the request until the last kit has the item."""
    hub: float
    """Processor milliseconds of the hub per delivery."""
    database: float
    statements: float


def fan_out(database: str, kits: int, postgres: Server) -> FanOut:
    proof = admitted(database)
    tokens = kits_of_users(database, kits)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        running = stack.enter_context(hub(folder, {"database": database, "access-log": "none"}))
        (named := folder / "tokens").write_text("\n".join(tokens))
        command = [sys.executable, "-m", "tests.bench.fan_out", "--as-kits", running.address]
        process = stack.enter_context(
            started([*command, str(named)], stdout=subprocess.PIPE, text=True)
        )
        assert process.stdout is not None
        if process.stdout.readline().strip() != "linked":
            raise SystemExit("the kits are not linked")

        def doings() -> tuple[float, float, float]:
            theirs = family_processor(postgres.pid) if is_postgres(database) else 0.0
            return processor(running.process.pid), theirs, statements(database)

        request, took = push_request(running.port, proof), []
        for push in range(PUSHES):
            if push == 1:  # The first push also transfers the sender's name.
                before = doings()
            began = time.time()
            with socket.create_connection(("127.0.0.1", running.port)) as caller:
                caller.sendall(request)
                took.append(float(process.stdout.readline()) - began)
            time.sleep(REST)
        of_hub, of_database, calls = (
            (b - a) / (PUSHES - 1) / kits for a, b in zip(before, doings(), strict=True)
        )
    return FanOut(statistics.median(took[1:]), 1000 * of_hub, 1000 * of_database, calls)


def main(kits: int = KITS, engines: str = ENGINES) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        server(durable=True, preload="pg_stat_statements") as postgres,
    ):
        for engine in engines.split(","):
            new = str(Path(folder, "hub.sqlite3"))
            database = new if engine == "SQLite" else new_database(postgres.address)
            result = fan_out(database, kits, postgres)
            goal = "<= 0.5" if kits == KITS else ""
            row(f"{engine}, a push to {kits} linked kits, to the last", result.seconds, goal, "s")
            row("  the hub's processor for a delivery", result.hub, "", "ms")
            if engine != "SQLite":
                row("  PostgreSQL's", result.database, "", "ms")
                row("  statements", result.statements)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-kits"]:
        trio.run(_hold, sys.argv[2], Path(sys.argv[3]).read_text().split())
    else:
        kits, engines = (*sys.argv[1:], *(str(KITS), ENGINES)[len(sys.argv) - 1 :])
        main(int(kits), engines)
