"""Measures a hub with a thousand idle agents. With items, a link costs more (`all_linked`).

Run it as `python -m tests.bench.silent_links`. `tests.bench.links` measures ten thousand over TLS.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg
import trio

from fieldagent.agent.channels.hub_connection import HubAddress as Address
from fieldagent.extensions.lab.simulator.fleet import Fleet, Plan
from fieldagent.hub.access import directory
from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.opening import open_store
from tests.bench.process import processor, resident
from tests.bench.table import row
from tests.postgres import new_database, server
from tests.processes import Hub, administer, hub

AGENTS = 1_000
OF_ONE_ADDRESS = 100
"""Kits per address: a hub accepts only that many calls from one address at a time."""
REST = 20.0
"""Seconds without activity before the measurement, and duration of the measurement."""


class LinkCost(NamedTuple):
    """Cost of a hub with very many idle agents."""

    bytes_each: float
    """Bytes of the hub's memory per link."""
    connect: float
    """Seconds until all are linked."""
    reconnect: float
    """Seconds until all are linked again after the hub was killed and restarted."""


class Rest(NamedTuple):
    processor: float
    """Part of one core for all links."""
    transactions: float
    """Transactions per second."""


def fleet() -> LinkCost:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        database = str(home / "hub.sqlite3")
        tokens = _devices(database)
        with hub(home, {"database": database}) as first:
            alone = resident(first.process.pid)
            connect, used = trio.run(_measure, first, tokens)
        with hub(home, {"database": database}) as second:
            # As after a power cut of the hub: all agents connect at once.
            reconnect, _ = trio.run(_measure, second, tokens)
    return LinkCost((used - alone) / AGENTS, connect, reconnect)


def _devices(database: str) -> list[str]:
    administer(database, "init", "Bench")
    return devices_of(database, AGENTS)


def devices_of(database: str, devices: int) -> list[str]:
    """Return the link tokens of that many new devices of one user."""
    store = open_store(database)

    def add(db: Db) -> list[str]:
        member = directory.add_user(db, 1, "kits", now=0.0)
        return [
            directory.add_device(db, 1, member, directory.NewDevice(f"kit {number}"), now=0.0)[1]
            for number in range(devices)
        ]

    tokens = store.run_once(add)
    store.close()
    return tokens


def sources_of(kits: int, first: int = 0) -> tuple[str, ...]:
    """Return addresses of this machine for that many kits, after those of `first` other kits."""
    numbers = range(first // OF_ONE_ADDRESS, -(-(first + kits) // OF_ONE_ADDRESS))
    return tuple(f"127.1.{number // 250}.{number % 250 + 1}" for number in numbers)


async def _measure(running: Hub, tokens: list[str]) -> tuple[float, int]:
    """Link all agents, and return the seconds and the hub's memory."""
    began = time.perf_counter()
    async with _linked(running, tokens):
        took = time.perf_counter() - began
        await trio.sleep(1)
        return took, resident(running.process.pid)


@asynccontextmanager
async def _linked(running: Hub, tokens: list[str]) -> AsyncIterator[None]:
    plan = Plan(sources=sources_of(len(tokens)))
    fleet = Fleet(Address(running.address, ""), tokens, plan)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fleet.run)
        while fleet.figures.open < len(tokens):
            await trio.sleep(0.05)
        yield
        nursery.cancel_scope.cancel()


def at_rest(database: str) -> Rest:
    """Measure idle links on PostgreSQL."""
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
    """Return PostgreSQL's transaction count so far, which is up to a second old."""
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
