"""A PostgreSQL server of our own, from Debian's package, for as long as the tests run."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import leftovers
from tests.machine import lacking

ACCOUNT = "postgres"
"""PostgreSQL refuses to run as root; Debian's package makes this account."""


def binaries() -> Path | None:
    """Where Debian puts `initdb` and `postgres`, which are on nobody's PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextmanager
def server() -> Iterator[str]:
    """The address of a running server, without a database's name: `postgresql://…?host=…`."""
    where = binaries()
    if where is None:
        lacking("no PostgreSQL server: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="fieldagent-postgres-"))
    as_account: list[str] = []
    if os.geteuid() == 0:
        shutil.chown(folder, ACCOUNT)
        as_account = ["runuser", "-u", ACCOUNT, "--"]
    data = folder / "data"
    quiet = {"stdout": subprocess.DEVNULL, "cwd": folder, "env": leftovers.unmarked()}
    initdb = [where / "initdb", "--auth=trust", "-U", ACCOUNT, "-E", "UTF8", "-D", data]
    subprocess.run([*as_account, *initdb], check=True, **quiet)  # type: ignore[call-overload]
    # Tests kill its processes and never the machine: what the kernel has is kept.
    settings = f"-k {folder} -c listen_addresses= -c max_connections=200 -c fsync=off"
    control = [*as_account, where / "pg_ctl", "-w", "-D", data, "-l", folder / "log"]
    subprocess.run([*control, "-o", settings, "start"], check=True, **quiet)  # type: ignore[call-overload]
    try:
        yield f"postgresql:///%s?host={folder}&user={ACCOUNT}"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, **quiet)  # type: ignore[call-overload]
        shutil.rmtree(folder)


def new_database(address: str) -> str:
    """The address of a new, empty database on that server."""
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(address % ACCOUNT, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return address % name
