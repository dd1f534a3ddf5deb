"""Runs a separate PostgreSQL server from Debian's package while the tests run."""

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
from tests.machine import unavailable

ACCOUNT = "postgres"
"""System account from Debian's package, because PostgreSQL refuses to run as root."""
AS_ACCOUNT = ("setpriv", "--reuid", ACCOUNT, "--regid", ACCOUNT, "--clear-groups")
"""Command prefix for root. It is replaced by the program, so signals reach the program itself."""
FIRST_ID = "FIELDAGENT_TEST_FIRST_ID"
"""Environment variable: the first id of each sequence in the tests' databases, by default 1. Run
the PostgreSQL tests with 32760, 2147483638 and 9007199254740982. Tests with fixed ids fail then,
so look only for errors of PostgreSQL and of the hub."""


def binaries() -> Path | None:
    """Return the folder of `initdb` and `postgres`, which Debian leaves out of PATH."""
    paths = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return paths[-1].parent if paths else None


class Server:
    """A server with its data in `folder`. `where` is the folder of PostgreSQL's programs."""

    def __init__(
        self, where: Path, folder: Path, *, durable: bool = False, preload: str = ""
    ) -> None:
        self._where = where
        self._folder = folder
        self._durable = durable
        self._preload = preload
        self._as_account: list[str] = []
        if os.geteuid() == 0:
            shutil.chown(folder, ACCOUNT)
            self._as_account = ["runuser", "-u", ACCOUNT, "--"]
        self._run("initdb", "--auth=trust", "-U", ACCOUNT, "-E", "UTF8")
        self.address = f"postgresql:///%s?host={folder}&user={ACCOUNT}"
        """URL of a database, with %s for its name."""

    def start(self) -> None:
        # Tests kill its processes but never the machine, so the kernel keeps the written data.
        settings = f"-k {self._folder} -c listen_addresses= -c max_connections=200"
        if not self._durable:
            # An autovacuum process would visit each database, and each test has its own.
            settings += " -c fsync=off -c autovacuum=off"
        if self._preload:
            settings += f" -c shared_preload_libraries={self._preload}"
        self._control("-o", settings, "start")

    @property
    def pid(self) -> int:
        """Return the id of PostgreSQL's first process."""
        return int((self._folder / "data/postmaster.pid").read_text().split()[0])

    def restart(self) -> None:
        """Kill the server and start it again, as after a crash."""
        self.stop()
        self.start()

    def stop(self) -> None:
        self._control("-m", "immediate", "stop")

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-w", "-l", str(self._folder / "log"), *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as_account, str(self._where / program), "-D", str(self._folder / "data")]
        subprocess.run(
            [*command, *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self._folder,
            env=leftovers.unmarked(),
        )


@contextmanager
def server(*, durable: bool = False, preload: str = "") -> Iterator[Server]:
    """Yield a server. With `durable`, commits are on the disk, for measurements of their cost.
    `preload` names a library of PostgreSQL.
    """
    where = binaries()
    if where is None:
        unavailable("no PostgreSQL server: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="fieldagent-postgres-"))
    running = Server(where, folder, durable=durable, preload=preload)
    running.start()
    try:
        yield running
    finally:
        running.stop()
        shutil.rmtree(folder)


def new_database(address: str, template: str = "template1") -> str:
    """Return the address of a new database on that server, a copy of the template."""
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(address % ACCOUNT, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
    if (first := int(os.environ.get(FIRST_ID) or 0)) and template == "template1":
        with psycopg.connect(address % name, autocommit=True) as connection:
            connection.execute((_START_SEQUENCES % (min(first, 2**31 - 10), first)).encode())
    return address % name


_START_SEQUENCES = """
CREATE FUNCTION start_sequences() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE made record;
BEGIN
    FOR made IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE object_type = 'sequence' LOOP
        PERFORM setval(made.objid::regclass, CASE
            WHEN made.object_identity ~ '\\.(workspace|member|device|team)_id_seq$' THEN %d
            ELSE %d END, false);
    END LOOP;
END $$;
CREATE EVENT TRIGGER start_sequences ON ddl_command_end WHEN TAG IN ('CREATE TABLE')
    EXECUTE FUNCTION start_sequences();
"""
"""Event trigger (PostgreSQL's manual, Event Triggers), because the hub creates its tables later.
The first number is for ids that are also sent on air, which are below 2**32."""
