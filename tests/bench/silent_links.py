"""A hub with a thousand agents that say nothing: what they cost it.

Run as `python -m tests.bench.silent_links`. `tests.bench.links` has ten thousand of them, over TLS.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import trio

from fieldagent.agent.channels.connecting import Unreachable, open_stream
from fieldagent.agent.channels.hub_connection import HubAddress as Address
from fieldagent.agent.channels.hub_connection import open_web_socket
from fieldagent.http.link_session import LinkSession
from fieldagent.hub.access import directory
from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.opening import open_store
from tests.bench.process import processor, resident
from tests.bench.table import row
from tests.postgres import new_database, server
from tests.processes import Hub, administer, hub

AGENTS = 1_000
REST = 20.0
"""Seconds that links are left alone, and then watched."""


class Fleet(NamedTuple):
    """A hub with very many agents that say nothing."""

    bytes_each: float
    """Of the hub's memory, for one link."""
    connect: float
    """Seconds until all are linked."""
    reconnect: float
    """Seconds until all are linked again after the hub was killed and started anew."""


class Rest(NamedTuple):
    processor: float
    """Of one core, for all links."""
    transactions: float
    """A second."""


def fleet() -> Fleet:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        database = str(home / "hub.sqlite3")
        tokens = _devices(database)
        with hub(home, {"database": database}) as first:
            alone = resident(first.process.pid)
            connect, used = trio.run(_measure, first, tokens)
        with hub(home, {"database": database}) as second:
            # As after a power cut of the hub: all come at once.
            reconnect, _ = trio.run(_measure, second, tokens)
    return Fleet((used - alone) / AGENTS, connect, reconnect)


def _devices(database: str) -> list[str]:
    administer(database, "init", "Bench")
    return devices_of(database, AGENTS)


def devices_of(database: str, devices: int) -> list[str]:
    """The link tokens of so many new ones, all of one user."""
    store = open_store(database)

    def add(db: Db) -> list[str]:
        member = directory.add_user(db, 1, "kits", now=0.0)
        return [
            directory.add_device(db, 1, member, f"kit {number}", now=0.0)[1]
            for number in range(devices)
        ]

    tokens = store.once(add)
    store.close()
    return tokens


class Silence:
    """A post that has nothing to send."""

    async def greeted(self, journal: int) -> None: ...
    async def next(self, *, urgent: bool) -> Any:
        await trio.sleep_forever()

    async def stored(self, item: Any) -> None: ...
    async def returned(self, items: list[Any], reason: str) -> None: ...
    async def take_in(self, body: bytes) -> None: ...
    async def next_note(self) -> Any:
        await trio.sleep_forever()

    async def take_note(self, body: bytes) -> None: ...


async def _measure(running: Hub, tokens: list[str]) -> tuple[float, int]:
    """Link every agent: the seconds that takes, and the hub's memory then."""
    began = time.perf_counter()
    async with _linked(running, tokens):
        took = time.perf_counter() - began
        await trio.sleep(1)
        return took, resident(running.process.pid)


@asynccontextmanager
async def _linked(running: Hub, tokens: list[str]) -> AsyncIterator[None]:
    linked = 0
    all_linked = trio.Event()

    def count() -> None:
        nonlocal linked
        linked += 1
        if linked == len(tokens):
            all_linked.set()

    async def link(token: str) -> None:
        address = Address(running.address, token)
        while True:
            # They come from one address, which may have so many calls at one moment.
            with suppress(Unreachable):
                async with await open_stream(address.server) as stream:
                    socket = await open_web_socket(address, stream)
                    await LinkSession(socket, Silence(), opened=count).run()
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        for token in tokens:
            nursery.start_soon(link, token)
        await all_linked.wait()
        yield
        nursery.cancel_scope.cancel()


def at_rest(database: str) -> Rest:
    """Links over which nothing goes, on PostgreSQL."""
    tokens = _devices(database)
    with tempfile.TemporaryDirectory() as folder, hub(Path(folder), {"database": database}) as own:
        return trio.run(_rest, own, tokens, database)


async def _rest(running: Hub, tokens: list[str], database: str) -> Rest:
    async with _linked(running, tokens):
        await trio.sleep(REST)
        began = time.perf_counter()
        spent, transactions = processor(running.process.pid), _transactions(database)
        await trio.sleep(REST)
        took = time.perf_counter() - began
        return Rest(
            (processor(running.process.pid) - spent) / took,
            (_transactions(database) - transactions) / took,
        )


def _transactions(database: str) -> int:
    """Those that PostgreSQL has counted by now, up to a second late."""
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def main() -> None:
    with server(durable=True) as running:
        rest = at_rest(new_database(running.address))
    row(f"{AGENTS} silent links, PostgreSQL, of a core", rest.processor, "<= 0.03")
    row("  transactions", rest.transactions, "<= 5", "/s")
    kits = fleet()
    row(
        f"{AGENTS} linked agents, SQLite, memory of the hub for each",
        kits.bytes_each / 1024,
        "",
        "KiB",
    )
    row("  until all are linked", kits.connect, "", "s")
    row("  the same after the hub was killed", kits.reconnect, "", "s")


if __name__ == "__main__":
    main()
