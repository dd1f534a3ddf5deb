"""Measures the cost of notifications at a commit: PostgreSQL allows one such commit at a time.

Run it as `python -m tests.bench.notifications`. pgbench inserts a row of an item's size in each
transaction, with and without a notification, like hubs. Other connections listen.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from contextlib import ExitStack
from typing import NamedTuple

import psycopg

from tests.bench.process import family_processor
from tests.bench.table import row
from tests.postgres import Server, binaries, new_database, server

SECONDS = 4
MANY = 20
"""Number of hubs: connections that commit or listen."""
INSERT = "INSERT INTO written VALUES (repeat('x', 200));"
NOTIFY = "SELECT pg_notify('fieldagent', 'device 1');"


class Commits(NamedTuple):
    speed: float
    """Transactions per second."""
    processor: float
    """Processor milliseconds of the server per transaction."""


def commits(postgres: Server, statements: str, *, writers: int, listeners: int) -> Commits:
    database = new_database(postgres.address)
    where = binaries()
    assert where is not None
    with ExitStack() as stack:
        ears = [
            stack.enter_context(psycopg.connect(database, autocommit=True))
            for _ in range(max(listeners, 1))
        ]
        ears[0].execute("CREATE TABLE written (text TEXT)")
        for ear in ears[:listeners]:
            ear.execute("LISTEN fieldagent")
        script = stack.enter_context(tempfile.NamedTemporaryFile("w", suffix=".sql"))
        script.write(f"BEGIN; {statements} COMMIT;\n")
        script.flush()
        options = ["-n", "-j", "2", "-c", str(writers), "-T", str(SECONDS), "-f", script.name]
        before = family_processor(postgres.pid)
        done = subprocess.run(
            [str(where / "pgbench"), *options, database], check=True, capture_output=True, text=True
        )
        spent = family_processor(postgres.pid) - before
    count = re.search(r"processed: (\d+)", done.stdout)
    speed = re.search(r"^tps = ([0-9.]+)", done.stdout, re.MULTILINE)
    assert count is not None
    assert speed is not None
    return Commits(float(speed[1]), 1000 * spent / int(count[1]))


def main() -> None:
    with server(durable=True) as postgres:
        for writers in (1, MANY):
            for what, statements, listeners in (
                ("do not notify", INSERT, 0),
                ("notify one", INSERT + NOTIFY, 1),
                (f"notify {MANY}", INSERT + NOTIFY, MANY),
            ):
                result = commits(postgres, statements, writers=writers, listeners=listeners)
                row(f"commits of {writers} that {what}", result.speed, "", "/s")
                row("  PostgreSQL's processor for one", result.processor, "", "ms")


if __name__ == "__main__":
    main()
