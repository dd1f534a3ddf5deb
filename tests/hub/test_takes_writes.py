"""PostgreSQL accepts no writes, or not in time: the effects for callers, kits, probes and the log,
and the recovery.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.hub.alps import Alps
from tests.hub.test_cluster import contents
from tests.hub.test_outage import call
from tests.machine import fill, small_disk
from tests.postgres import ACCOUNT, Server, new_database, server
from tests.processes import Hub, hub, until

BOUND = 10.0
"""Seconds within which a push gets an answer, whatever the database does."""


class Trouble(NamedTuple):
    database: str
    running: Server
    disk: Path


@contextmanager
def locked_table(trouble: Trouble) -> Iterator[None]:
    """Lock a table that each push writes, from another connection."""
    with psycopg.connect(trouble.database, application_name="a restore") as other:
        other.execute("LOCK TABLE item IN ACCESS EXCLUSIVE MODE")
        yield


@contextmanager
def locked_row(trouble: Trouble) -> Iterator[None]:
    """Keep a transaction open that has changed the kit's row."""
    with psycopg.connect(trouble.database, application_name="psql") as other:
        other.execute("UPDATE device SET name = name")
        yield


@contextmanager
def frozen_database(trouble: Trouble) -> Iterator[None]:
    """Freeze the database: it neither answers nor ends, as on a disk that hangs."""
    pids = _processes(trouble.running.pid)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def _processes(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


@contextmanager
def full_disk(trouble: Trouble) -> Iterator[None]:
    """Fill its disk."""
    others = fill(trouble.disk)
    try:
        yield
    finally:
        others.unlink()


def push_in_time(running: Hub, alps: Alps, text: str) -> int:
    """Return the status of a push, which must come within `BOUND`."""
    headers = {"Content-Type": "application/json", **alps.proof}
    body = json.dumps({**alps.body, "message": {"content": text}})
    began = time.monotonic()
    status, _, answer = call(running, "POST", "/api/package", headers, body)
    assert time.monotonic() - began < BOUND
    assert status == 200 or ("again" in answer and "postgres" not in answer.lower())
    return status


TROUBLES = {
    "a table is locked": (locked_table, "it waits for item, which is locked by session "),
    "a row is locked": (locked_row, "it waits for device, which is locked by session "),
    "it is frozen": (frozen_database, "does not answer; check its activity"),
    "its disk is full": (full_disk, "is full"),
}


LONG = {"a row is locked", "it is frozen", "its disk is full"}


@pytest.mark.parametrize(
    "what",
    [pytest.param(what, marks=[pytest.mark.full] if what in LONG else []) for what in TROUBLES],
)
def test_write_failure_of_postgresql_is_reported_with_its_cause(what: str, tmp_path: Path) -> None:
    trouble, cause = TROUBLES[what]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        disk = stack.enter_context(small_disk(folder / "disk"))
        shutil.chown(disk, ACCOUNT)
        postgres = stack.enter_context(server())
        database = on_disk(postgres, disk)
        alps = Alps(database)
        running = stack.enter_context(hub(tmp_path, {"database": database}))
        kit = stack.enter_context(alps.kit(tmp_path, running.address))
        kit.expect("linked to the hub")
        assert push_in_time(running, alps, "before") == 200
        with trouble(Trouble(database, postgres, disk)):
            until(lambda: push_in_time(running, alps, "meanwhile " + "." * 5_000) in (503, 507))
            running.expect(cause)
            until(lambda: call(running, "GET", "/healthz")[0] == 503)
            metrics = call(running, "GET", "/metrics")[2]
            assert "database_up 0" in metrics or "disk_full 1" in metrics
            kit.call("POST", "/api/package/async", {"message": {"content": "from the kit"}})
            kit.expect("the hub cannot use its database now")
            assert push_in_time(running, alps, "meanwhile " + "." * 5_000) in (503, 507)
        until(lambda: call(running, "GET", "/healthz")[0] == 200)
        kit.expect("linked to the hub")
        assert push_in_time(running, alps, "after") == 200
        until(lambda: {"before", "after"} <= {*contents(kit)})
        until(lambda: call(running, "GET", "/metrics")[2].count("database_up 1"))
        assert running.stop() == 0
        lines = [line for line in running.output() if line.startswith("ERROR") and cause in line]
        assert len(lines) == 1, lines
        assert "Traceback" not in "\n".join(running.output())


def on_disk(postgres: Server, disk: Path) -> str:
    """Return a new database with its tables on that disk. The server's log is on another one."""
    database = new_database(postgres.address)
    name = urlsplit(database).path[1:]
    with psycopg.connect(postgres.address % ACCOUNT, autocommit=True) as owner:
        owner.execute(f"CREATE TABLESPACE small LOCATION '{disk}'".encode())
        owner.execute(f"ALTER DATABASE {name} SET TABLESPACE small".encode())
    return database
