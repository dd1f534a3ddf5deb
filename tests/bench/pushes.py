"""Measures accepted pushes up to the answer. With linked kits, a delivery costs more (`fan_out`).
The workspace has kits and a webhook. Webhooks get items from kits but no pushes, so their cost is
not included.

Run it as `python -m tests.bench.pushes`, or with `--lone` only for the cost of a single push. The
comparison is bare INSERTs of a row of a push's size, with a commit each, into the same database in
the same run: from one connection, and from 32 with pgbench. Figures are medians over the rounds,
and minimums for a single push.
"""

from __future__ import annotations

import json
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from fieldagent.hub.access import directory
from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.opening import is_postgres, open_store
from tests.bench.drive import accepted
from tests.bench.process import family_processor, processor
from tests.bench.table import row
from tests.postgres import Server, binaries, new_database, server
from tests.processes import Hub, administer, agent, hub

PUSHES, CALLERS, MANY = 1_000, 64, 1_000
"""Numbers of items and of callers at one moment, and the number of devices in the case of many."""
ALONE = 300
"""Number of consecutive pushes in a round."""
ROUNDS = 3
INSERTS = 500
INSERTERS = 32
SECONDS = 3
"""Seconds of pgbench."""
LATENCIES = 50
INSERT = (
    f"INSERT INTO audit (at, actor, action, detail) VALUES (0, 'bench', 'bench', '{'x' * 200}')"
)


class Proof(NamedTuple):
    key: str
    token: str


class Pushed(NamedTuple):
    serial: float
    """Speed as a ratio to INSERTs from one connection."""
    crowd: float
    """Speed as a ratio to those of pgbench. 0 on SQLite."""
    statements: float
    """Statements of the hub per push. 0 on SQLite."""
    processor: float
    """Processor milliseconds of the hub per push."""
    postgres: float
    """Processor milliseconds of the server per push."""


def pushed(database: str, devices: int, postgres: Server) -> Pushed:
    """Measure the speed of pushes to that many devices."""
    proof = admitted(database)
    equip(database, devices)
    administer(database, "webhook", "add", "http://127.0.0.1:9/", "--untried")
    rounds = []
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        running = stack.enter_context(hub(home, _settings(database)))
        _warm_up([running], proof, database)
        for _ in range(ROUNDS):
            before = _doings(running, database, postgres)
            own = _push_all(running.port, proof)
            each = [
                (b - a) / PUSHES
                for a, b in zip(before, _doings(running, database, postgres), strict=True)
            ]
            crowd = own / _pgbench(database) if is_postgres(database) else 0.0
            rounds.append(Pushed(own / _inserts(database), crowd, *each))
    return Pushed(*(statistics.median(each) for each in zip(*rounds, strict=True)))


def _doings(running: Hub, database: str, postgres: Server) -> tuple[float, float, float]:
    """Return the statements, and the processor milliseconds of the hub and the server, so far."""
    theirs = 1000 * family_processor(postgres.pid) if is_postgres(database) else 0.0
    return statements(database), 1000 * processor(running.process.pid), theirs


class Lone(NamedTuple):
    """Cost of one push at a time. `postgres` is 0 on SQLite."""

    statements: float
    processor: float
    """Processor milliseconds of the hub."""
    postgres: float
    """Processor milliseconds of the server."""


def lone(database: str, postgres: Server) -> Lone:
    proof = admitted(database)
    equip(database, 3)
    with tempfile.TemporaryDirectory() as home, hub(Path(home), _settings(database)) as running:
        _push_all(running.port, proof, ALONE, 1)
        rounds = []
        for _ in range(ROUNDS):
            before = _doings(running, database, postgres)
            _push_all(running.port, proof, ALONE, 1)
            after = _doings(running, database, postgres)
            rounds.append([(b - a) / ALONE for a, b in zip(before, after, strict=True)])
    return Lone(*(min(each) for each in zip(*rounds, strict=True)))


def _tell_lone(engine: str, database: str, postgres: Server) -> None:
    cost = lone(database, postgres)
    row(f"{engine}, a lone push, the hub's processor", cost.processor, "", "ms")
    if is_postgres(database):
        row("  PostgreSQL's", cost.postgres, "", "ms")
        row("  both", cost.processor + cost.postgres, "<= 2.5", "ms")
        row("  statements", cost.statements, "<= 8.5")


def _settings(database: str) -> dict[str, str]:
    return {"database": database, "webhook-allow": "127.0.0.0/8"}


def _warm_up(hubs: list[Hub], proof: Proof, database: str) -> None:
    """Warm up. Without statistics, PostgreSQL needs more time to find a push's devices when there
    are more items.
    """
    for each in hubs:
        _push_all(each.port, proof)
    if is_postgres(database):
        with psycopg.connect(database) as connection:
            # autovacuum does this within a minute.
            connection.execute("ANALYZE")


def equip(database: str, devices: int) -> None:
    """Add that many devices, each with its own user."""

    def add(db: Db) -> None:
        for number in range(devices):
            member = directory.add_user(db, 1, f"kit {number}", now=0.0)
            directory.add_device(db, 1, member, directory.NewDevice(f"kit {number}"), now=0.0)

    store = open_store(database)
    store.run_once(add)
    store.close()


def many_answered(database: str) -> float:
    """Return the milliseconds until a location to MANY devices is answered: the median."""
    proof = admitted(database)
    equip(database, MANY)
    with tempfile.TemporaryDirectory() as home, hub(Path(home), _settings(database)) as running:
        request = push_request(running.port, proof)
        each = [
            accepted(running.port, request, 1, status=OK, end=END, connections=1) for _ in range(11)
        ]
    return 1000 / statistics.median(each)


OK, END = b"HTTP/1.1 200", b"\r\n\r\n"


def admitted(database: str) -> Proof:
    """Prepare a new database with a caller who may push without limit."""
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


def _push_all(port: int, proof: Proof, pushes: int = PUSHES, callers: int = CALLERS) -> float:
    request = push_request(port, proof)
    return accepted(port, request, pushes, status=OK, end=END, connections=callers)


def _inserts(database: str) -> float:
    """Return INSERTs per second from one connection."""
    if is_postgres(database):
        with psycopg.connect(database, autocommit=True) as connection:
            began = time.perf_counter()
            for _ in range(INSERTS):
                connection.execute(INSERT.encode())
            return INSERTS / (time.perf_counter() - began)
    local = sqlite3.connect(database, isolation_level=None)
    local.execute("PRAGMA synchronous=FULL")
    began = time.perf_counter()
    for _ in range(INSERTS):
        local.execute(INSERT)
    took = time.perf_counter() - began
    local.close()
    return INSERTS / took


def _pgbench(database: str) -> float:
    """Return INSERTs per second from INSERTERS connections."""
    where = binaries()
    assert where is not None
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(INSERT + ";\n")
        script.flush()
        options = ["-n", "-j", "2", "-c", str(INSERTERS), "-T", str(SECONDS), "-f", script.name]
        command = [str(where / "pgbench"), *options, database]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(re.findall(r"^tps = ([0-9.]+)", output, re.MULTILINE)[0])


def statements(database: str) -> float:
    """Return the number of statements of PostgreSQL for the database so far."""
    if not is_postgres(database):
        return 0.0
    with psycopg.connect(database) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        record = connection.execute(
            "SELECT sum(calls) FROM pg_stat_statements WHERE dbid ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())"
        ).fetchone()
    assert record is not None
    return float(record[0] or 0)


def three_over_one(postgres: Server) -> float:
    """Return the CPU per push for three hubs with one database, as a ratio to one hub with a third
    of the callers. Hubs and PostgreSQL are included.
    """
    ratios = []
    with ExitStack() as stack:
        lone, shared = (new_database(postgres.address) for _ in range(2))
        proofs = [admitted(database) for database in (lone, shared)]
        homes = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(4)]
        for database in (lone, shared):
            equip(database, 3)
        one, *three = (
            stack.enter_context(hub(home, _settings(database)))
            for home, database in zip(homes, (lone, shared, shared, shared), strict=True)
        )
        for hubs, proof, database in (([one], proofs[0], lone), (three, proofs[1], shared)):
            _warm_up(hubs, proof, database)
        for _ in range(ROUNDS):
            alone = _spent([one], proofs[0], postgres)
            ratios.append(_spent(three, proofs[1], postgres) / alone)
    return statistics.median(ratios)


def _spent(hubs: list[Hub], proof: Proof, postgres: Server) -> float:
    """Return the CPU seconds per push, with CALLERS at each hub at one moment."""
    pids = [each.process.pid for each in hubs]
    before = sum(map(processor, pids)) + family_processor(postgres.pid)
    callers = [threading.Thread(target=_push_all, args=(each.port, proof, PUSHES)) for each in hubs]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    spent = sum(map(processor, pids)) + family_processor(postgres.pid) - before
    return spent / (PUSHES * len(hubs))


def latency() -> float:
    """Return the seconds from a push to the first action of the hook's script, over loopback: the
    median.
    """
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


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        server(durable=True, preload="pg_stat_statements") as postgres,
    ):
        new: dict[str, Callable[[], str]] = {
            "SQLite": lambda: str(Path(folder, f"{uuid.uuid4().hex}.sqlite3")),
            "PostgreSQL": lambda: new_database(postgres.address),
        }
        for engine, database in new.items():
            _tell_lone(engine, database(), postgres)
            if sys.argv[1:] == ["--lone"]:
                continue
            for devices in (3, 100):
                result = pushed(database(), devices, postgres)
                what = f"{engine}, pushes to {devices} devices over serial INSERTs"
                goals = devices == 3 and engine == "PostgreSQL"
                row(what, result.serial, ">= 0.6" if goals else "")
                if engine == "PostgreSQL":
                    row("  over pgbench", result.crowd)
                    row("  statements a push", result.statements, "<= 2" if goals else "")
                    row("  PostgreSQL's processor for a push", result.postgres, "", "ms")
                row("  the hub's", result.processor, "", "ms")
            answered = many_answered(database())
            row(f"{engine}, a location to {MANY} devices answered", answered, "<= 100", "ms")
        if sys.argv[1:] == ["--lone"]:
            return
        row("three hubs, CPU a push over one hub's", three_over_one(postgres), "<= 1.1")
    row("push to hook over loopback, median", latency() * 1000, "", "ms")


if __name__ == "__main__":
    main()
