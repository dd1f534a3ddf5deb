"""Measures positions in one workspace where every kit is linked and hears every other. With few
linked kits, or with kits that hear nobody, the same items look many times cheaper.

Run it as `python -m tests.bench.all_linked [--kits 5,50,200] [--engine SQLite] [--rate 10]`. The
kits send one position per message, as fast as the hub takes them, or with `--rate` that many a
second in all. The measurement ends when each kit has the last position of each other one. It shows
for an item the processor time of hub and database, its positions at kits, and the rows that it
left. The kits know each other's names before.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import NamedTuple

import trio

from fieldagent.agent.channels.connecting import open_stream
from fieldagent.agent.channels.hub_connection import HubAddress, open_web_socket
from fieldagent.http.web_socket import WebSocket
from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.opening import is_postgres, open_store
from fieldagent.package.package import Location
from fieldagent.wire.envelope import Entry, Source, decode, encode
from fieldagent.wire.link import IpLink, LinkHello, MessageReceived
from tests.bench.inbound import kits_of_users
from tests.bench.process import family_processor, processor
from tests.bench.table import row
from tests.postgres import new_database, server
from tests.processes import administer, hub, started

KITS = (5, 50, 200)
ITEMS, LEAST = 1_000, 10
"""Total number of items of all kits, and smallest number of items of each kit."""
FIRST = 1_790_000_000
FLAT = 1.5
"""Largest ratio of the cost of an item with many kits to that with few."""


class Kit:
    """A kit that sends its track and notes the newest position of each other one. It reads a body
    once for all kits, so that the kits leave most of the processor to the hub.
    """

    def __init__(self, others: int, pause: float) -> None:
        self._pause = pause
        self._others = others
        self._sequence = 0
        self.positions = 0
        self._may_send = trio.Event()

    async def link_up(self, socket: WebSocket) -> None:
        self._socket, self._link = socket, IpLink(LinkHello())
        await socket.send(self._link.make_hello())
        self._link.receive(await socket.receive())

    async def listen(self) -> None:
        while True:
            event = self._link.receive(await self._socket.receive())
            if isinstance(event, MessageReceived):
                await self._socket.send(self._link.acknowledge(event.number))
                self._note(event.bodies)
            self._may_send.set()

    def begin(self, last: int) -> None:
        """Begin to wait until a position with the time `last` has arrived from every other kit."""
        self._last, self._ended, self.over = last, set[int](), trio.Event()

    async def send(self, items: int, wait: float) -> None:
        await trio.sleep(wait)
        for left in reversed(range(items)):
            await trio.sleep(self._pause)
            while not self._link.free:
                self._may_send = trio.Event()
                await self._may_send.wait()
            self._sequence += 1
            place = Location(46.5 + self._sequence * 1e-4, 7.25)
            entry = Entry(self._sequence, place, self._last - bool(left))
            await self._socket.send(self._link.send(encode([entry]))[1])

    def _note(self, bodies: tuple[bytes, ...]) -> None:
        for body in bodies:
            stations, time_ = stations_of(body)
            self.positions += len(stations)
            if time_ == self._last:
                self._ended.update(stations)
        if len(self._ended) == self._others:
            self.over.set()


@cache
def stations_of(body: bytes) -> tuple[list[int], int]:
    """Return the stations whose positions are in the body, and the time of the last one."""
    entries = decode(body).entries
    stations = [each.content.station for each in entries if isinstance(each.content, Source)]
    return stations, max((e.time for e in entries if isinstance(e.content, Location)), default=0)


async def _talk(address: str, tokens: list[str], items: int, rate: float) -> None:
    pause = len(tokens) / rate if rate else 0.0
    kits = [Kit(len(tokens) - 1, pause) for _ in tokens]
    turns = trio.CapacityLimiter(50)

    async def link_up(token: str, kit: Kit) -> None:
        connection = HubAddress(address, token)
        async with turns:
            socket = await open_web_socket(connection, await open_stream(connection.server))
            await kit.link_up(socket)

    async with trio.open_nursery() as nursery:
        for token, kit in zip(tokens, kits, strict=True):
            nursery.start_soon(link_up, token, kit)
    async with trio.open_nursery() as nursery:
        for kit in kits:
            kit.begin(0)
            nursery.start_soon(kit.listen)
        # First each kit gets the name of each other one, which happens once.
        for last, each, said in ((FIRST, 1, "linked"), (FIRST + 10, items, "")):
            for number, kit in enumerate(kits):
                kit.begin(last)
                kit.positions = 0
                wait = pause * number / len(tokens) if not said else 0.0
                nursery.start_soon(kit.send, each, wait)
            for kit in kits:
                await kit.over.wait()
            if said:
                print(said, flush=True)
                await trio.to_thread.run_sync(sys.stdin.readline)
        print(sum(kit.positions for kit in kits), flush=True)
        nursery.cancel_scope.cancel()


class Heard(NamedTuple):
    cost: float
    """Processor milliseconds of hub and database per item."""
    positions: float
    """Positions to other kits per item."""
    rows: float
    """Rows of deliveries and receipts per item."""
    seconds: float


def heard(database: str, kits: int, rate: float, postmaster: int) -> Heard:
    """Measure a workspace with that many kits."""
    administer(database, "init", "Bench")
    tokens = kits_of_users(database, kits)
    each = max(LEAST, ITEMS // kits)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        running = stack.enter_context(hub(folder, {"database": database, "access-log": "none"}))
        (named := folder / "tokens").write_text("\n".join(tokens))
        command = [sys.executable, "-m", "tests.bench.all_linked", "--as-kits", running.address]
        command += [str(named), str(each), str(rate)]
        pipe = subprocess.PIPE
        process = stack.enter_context(started(command, stdin=pipe, stdout=pipe, text=True))
        assert process.stdin is not None and process.stdout is not None
        if process.stdout.readline().strip() != "linked":
            raise SystemExit("the kits are not linked")

        def spent() -> float:
            of_database = family_processor(postmaster) if is_postgres(database) else 0.0
            return processor(running.process.pid) + of_database

        before, began = spent(), time.time()
        process.stdin.write("go\n")
        process.stdin.flush()
        positions = int(process.stdout.readline())
        took, items = time.time() - began, kits * each
        work = (spent() - before) * 1000 / items
    return Heard(work, positions / items, _rows(database) / items, took)


def _rows(database: str) -> int:
    def count(db: Db) -> int:
        sql = "SELECT (SELECT count(*) FROM delivery) + (SELECT count(*) FROM receipt)"
        return int(db.execute(sql)[0][0])

    store = open_store(database)
    rows = store.run_once(count)
    store.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kits", default=",".join(map(str, KITS)))
    parser.add_argument("--engine", default="SQLite,PostgreSQL")
    parser.add_argument("--rate", type=float, default=0.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, server(durable=True) as postgres:
        for engine in asked.engine.split(","):
            first = 0.0
            for kits in map(int, asked.kits.split(",")):
                new = str(Path(folder, f"{kits}.sqlite3"))
                database = new if engine == "SQLite" else new_database(postgres.address)
                result = heard(database, kits, asked.rate, postgres.pid)
                first = first or result.cost
                row(f"{engine}, {kits} kits that hear each other, an item", result.cost, "", "ms")
                row("  as a ratio to the fewest kits", result.cost / first, f"<= {FLAT}")
                row("  positions to kits for an item", result.positions)
                row("  rows of deliveries and receipts", result.rows)
                row("  time until all have all", result.seconds, "", "s")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-kits"]:
        address, named, items, rate = sys.argv[2:]
        trio.run(_talk, address, Path(named).read_text().split(), int(items), float(rate))
    else:
        main()
