"""The hub under load: pushes accepted durably, push to hook, and a thousand agents on one hub.

Run as `python -m tests.bench.hub`. Pushes are counted against a loop of bare INSERTs, one commit
each, into the same database in the same run.
"""

from __future__ import annotations

import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import trio

from fieldagent.agent.channels.hub_connection import HubAddress as Address
from fieldagent.agent.channels.hub_connection import Unreachable, open_stream, open_web_socket
from fieldagent.http.link_session import LinkSession
from fieldagent.hub import directory
from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.opening import open_store
from tests.bench.durable import accepted
from tests.bench.process import processor, resident
from tests.postgres import new_database, server
from tests.processes import Hub, administer, agent, hub

PUSHES, CALLERS, DEVICES, MANY = 2_000, 64, 3, 1_000
"""How many items, by how many callers at one moment, to how many devices each; and one to many."""
ROUNDS = 3
INSERTS = 500
LATENCIES = 50
AGENTS = 1_000
REST = 20.0
"""Seconds that links are left alone, and then watched."""


class Proof(NamedTuple):
    key: str
    token: str


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


def push_ratio(database: str) -> float:
    """Pushes accepted in a second over bare INSERTs in a second: the median of the rounds."""
    proof = admitted(database)
    _equip(database, DEVICES)
    ratios = []
    with tempfile.TemporaryDirectory() as home, hub(Path(home), {"database": database}) as running:
        for _ in range(ROUNDS):
            own = _push_all(running.port, proof)
            ratios.append(own / _inserts(database))
    return statistics.median(ratios)


def _equip(database: str, devices: int) -> None:
    """So many devices, each of a user of its own."""

    def add(db: Db) -> None:
        for number in range(devices):
            member = directory.add_user(db, 1, f"kit {number}", now=0.0)
            directory.add_device(db, 1, member, f"kit {number}", now=0.0)

    store = open_store(database)
    store.once(add)
    store.close()


def many_answered(database: str) -> float:
    """Milliseconds until a location to MANY devices is answered: the median."""
    proof = admitted(database)
    _equip(database, MANY)
    with tempfile.TemporaryDirectory() as home, hub(Path(home), {"database": database}) as running:
        request = push_request(running.port, proof)
        each = [
            accepted(running.port, request, 1, status=b"200", end=b"\r\n\r\n", connections=1)
            for _ in range(11)
        ]
    return 1000 / statistics.median(each)


def admitted(database: str) -> Proof:
    """A new database with somebody who may push as often as they like."""
    first = administer(database, "init", "Bench")
    fast = ("key", "add", "bench", "--per-minute", "1000000", "--burst", "100000")
    return Proof(administer(database, *fast)["apiKey"], first["token"])


def push_request(port: int, proof: Proof) -> bytes:
    body = (
        b'{"sourceUserId":"1","workspaceId":"1",'
        b'"location":{"latitude":"47.1","longitude":"8.2","timestamp":"2026-09-21T14:00:00Z"}}'
    )
    head = (
        f"POST /api/package HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nx-api-key: {proof.key}\r\n"
        f"Authorization: Bearer {proof.token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _push_all(port: int, proof: Proof) -> float:
    return accepted(
        port,
        push_request(port, proof),
        PUSHES,
        status=b"200",
        end=b"\r\n\r\n",
        connections=CALLERS,
    )


def _inserts(database: str) -> float:
    """Rows of a push's size a second, from one connection, a commit for each."""
    sql = "INSERT INTO audit (at, actor, action, detail) VALUES (0, 'bench', 'bench', "
    text = "'" + "x" * 200 + "')"
    if database.startswith("postgresql://"):
        with psycopg.connect(database, autocommit=True) as connection:
            began = time.perf_counter()
            for _ in range(INSERTS):
                connection.execute((sql + text).encode())
            return INSERTS / (time.perf_counter() - began)
    local = sqlite3.connect(database, isolation_level=None)
    local.execute("PRAGMA synchronous=FULL")
    began = time.perf_counter()
    for _ in range(INSERTS):
        local.execute(sql + text)
    took = time.perf_counter() - began
    local.close()
    return INSERTS / took


def latency() -> float:
    """Seconds from a push to the first act of the hook's script, over loopback: the median."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        home = Path(folder)
        database = str(home / "hub.sqlite3")
        first = administer(database, "init", "Bench")
        fast = ("key", "add", "bench", "--per-minute", "60000", "--burst", "1000")
        proof = Proof(administer(database, *fast)["apiKey"], first["token"])
        member = str(administer(database, "user", "add", "kit")["id"])
        device = administer(database, "device", "add", "kit", "--user", member)
        running = stack.enter_context(hub(home, {"database": database}))
        settings: dict[str, Any] = {
            "satellite-port": None,
            "hub-address": running.address,
            "hub-token": device["hub-token"],
            "inbound-hook": "echo handed",
        }
        kit = stack.enter_context(agent(home, settings))
        kit.expect("linked to the hub")
        return statistics.median(_time_one(running, kit, proof, member) for _ in range(LATENCIES))


def _time_one(running: Hub, kit: Any, proof: Proof, member: str) -> float:
    body = {
        "sourceUserId": "1",
        "workspaceId": "1",
        "targetUserId": member,
        "message": {"content": "ping"},
    }
    headers = {
        "Content-Type": "application/json",
        "x-api-key": proof.key,
        "Authorization": f"Bearer {proof.token}",
    }
    connection = HTTPConnection("127.0.0.1", running.port)
    began = time.perf_counter()
    connection.request("POST", "/api/package", json.dumps(body), headers)
    assert connection.getresponse().status == 200
    kit.expect("handed")
    took = time.perf_counter() - began
    connection.close()
    return took


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
                async with await open_stream(address) as stream:
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
    with tempfile.TemporaryDirectory() as folder:
        own = push_ratio(str(Path(folder) / "hub.sqlite3"))
        many = many_answered(str(Path(folder) / "many.sqlite3"))
    print(f"{f'pushes accepted over bare INSERTs, {CALLERS} callers, SQLite':<62} {own:>7.3f}")
    print(f"{f'a location to {MANY} devices answered, SQLite':<62} {many:>7.1f} ms")
    with server(durable=True) as running:
        own = push_ratio(new_database(running.address))
        many = many_answered(new_database(running.address))
        rest = at_rest(new_database(running.address))
    print(f"{f'pushes accepted over bare INSERTs, {CALLERS} callers, PostgreSQL':<62} {own:>7.3f}")
    print(f"{f'a location to {MANY} devices answered, PostgreSQL':<62} {many:>7.1f} ms")
    print(f"{f'{AGENTS} silent links, PostgreSQL: of a core':<62} {rest.processor:>7.4f}")
    print(f"{f'{AGENTS} silent links, PostgreSQL':<62} {rest.transactions:>7.1f} transactions/s")
    print(f"{'push to hook over loopback, median':<62} {latency() * 1000:>7.1f} ms")
    kits = fleet()
    print(
        f"{f'hub memory for one of {AGENTS} linked agents':<62} {kits.bytes_each / 1024:>7.1f} KiB"
    )
    print(f"{f'{AGENTS} agents link':<62} {kits.connect:>7.2f} s")
    print(f"{f'{AGENTS} agents link again after the hub was killed':<62} {kits.reconnect:>7.2f} s")


if __name__ == "__main__":
    main()
