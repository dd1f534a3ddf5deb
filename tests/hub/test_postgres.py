"""PostgreSQL in operation: behind a pooler, with a role that cannot create tables, and copied by
pg_dump.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from fieldagent.hub.store.contract import DatabaseOptions
from fieldagent.hub.store.opening import open_store
from fieldagent.hub.store.postgres_connections import Connections
from fieldagent.store.group import StoreUnavailable
from tests.hub.alps import Alps
from tests.hub.test_cluster import contents
from tests.machine import tool
from tests.postgres import ACCOUNT, binaries, new_database
from tests.processes import (
    MODULE,
    PATIENCE,
    administer,
    free_port,
    hub,
    started,
    until,
)


def run_hub_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MODULE, "hub", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@contextmanager
def pgbouncer(home: Path, database: str) -> Iterator[str]:
    """Yield the address of that database through PgBouncer, in transaction mode with two
    connections.
    """
    program = tool("pgbouncer", "pgbouncer")
    where, name = parse_qs(urlsplit(database).query)["host"][0], urlsplit(database).path[1:]
    port = free_port()
    settings = home / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n{name} = host={where} user={ACCOUNT}\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        "pool_mode = transaction\ndefault_pool_size = 2\n"
    )
    command = [program, str(settings)]
    if os.geteuid() == 0:  # PgBouncer refuses to run as root
        for folder in (home, *home.parents):
            folder.chmod(folder.stat().st_mode | 0o055 if folder.name.startswith("pyt") else 0o755)
            if folder.parent.name == "tmp":
                break
        command = ["runuser", "-u", ACCOUNT, "--", *command]
    log_path = home / "pgbouncer.log"
    with log_path.open("wb") as log, started(command, stdout=log, stderr=log) as process:
        address = f"postgresql://{ACCOUNT}@127.0.0.1:{port}/{name}"

        def answers() -> bool:
            assert process.poll() is None, log_path.read_text()
            try:
                psycopg.connect(address).close()
            except psycopg.Error:
                return False
            return True

        until(answers)
        yield address
        process.terminate()
        process.wait(PATIENCE)


@pytest.mark.parametrize(
    "direct",
    [pytest.param(False, marks=pytest.mark.full), True],
    ids=["polled", "heard directly"],
)
def test_item_crosses_two_hubs_behind_pgbouncer(
    direct: bool, postgres: str, tmp_path: Path
) -> None:
    """An item that one hub accepts reaches the kit at the other hub. A statement is used more often
    than psycopg needs to prepare it.
    """
    database = new_database(postgres)
    alps = Alps(database)
    with ExitStack() as stack:
        pooled = stack.enter_context(pgbouncer(tmp_path, database))
        settings = {"database": pooled, "database-pooler": "transaction"}
        if direct:
            settings["database-direct"] = database
        hubs = []
        for number in range(2):
            home = tmp_path / f"hub{number}"
            home.mkdir()
            hubs.append(stack.enter_context(hub(home, settings)))
        kit = stack.enter_context(alps.kit(tmp_path, hubs[0].address))
        kit.expect("linked to the hub")
        for number in range(12):
            alps.push(hubs[number % 2].port, f"push {number}")
        until(lambda: len(contents(kit)) == 12)
        administer(database, "device", "disable", "kit")
        kit.expect("the hub ended the link for good")
        for running in hubs:
            assert running.stop() == 0
            output = "\n".join(running.output())
            assert "Traceback" not in output
            assert "cannot be used" not in output


@pytest.mark.full
@pytest.mark.parametrize("others", [0, 3], ids=["alone", "beside others"])
def test_undeclared_connection_pooler_is_rejected(
    others: int, postgres: str, tmp_path: Path
) -> None:
    """The rejection comes before any query and for each command, because a prepared statement could
    be confused with another one. Other clients use the hub's two connections in its sessions.
    """
    database = new_database(postgres)
    administer(database, "init", "Alps")
    settings = tmp_path / "hub.properties"
    ended = threading.Event()

    def use(pooled: str) -> None:
        with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as connection:
            while not ended.is_set():
                connection.execute("SELECT pg_sleep(0.001)")

    with pgbouncer(tmp_path, database) as pooled, ThreadPoolExecutor(3) as threads:
        settings.write_text(f"database={pooled}\nlisten=127.0.0.1\nport={free_port()}\n")
        using = [threads.submit(use, pooled) for _ in range(others)]
        try:
            run = run_hub_command("run", "--config", str(settings))
            listed = run_hub_command("user", "list", "--database", pooled)
        finally:
            ended.set()
        for each in using:
            each.result(PATIENCE)
    for refused in (run, listed):
        assert refused.returncode == 69, refused.stderr
        assert "database-pooler=transaction" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert "answers at" not in run.stderr


@pytest.mark.full
def test_hub_runs_with_a_database_role_without_create_permission(
    postgres: str, tmp_path: Path
) -> None:
    database = new_database(postgres)
    role = f"role_{urlsplit(database).path[6:]}"
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN".encode())
        limited = database.replace(f"user={ACCOUNT}", f"user={role}")
        refused = run_hub_command("run", "--database", limited)
        assert refused.returncode == 76
        assert "it has no tables" in refused.stderr
        assert "`fieldagent hub database migrate`" in refused.stderr
        denied = run_hub_command("database", "migrate", "--database", limited)
        assert denied.returncode == 69
        assert "permission denied" in denied.stderr
        assert "Traceback" not in denied.stderr + refused.stderr
        assert run_hub_command("database", "migrate", "--database", database).returncode == 0
        owner.execute(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "
            f"{role}".encode()
        )
        alps = Alps(limited)
        with hub(tmp_path, {"database": limited}) as running:
            with alps.kit(tmp_path, running.address) as kit:
                alps.push(running.port, "by a role that may create nothing")
                until(lambda: len(contents(kit)) == 1)
            assert running.stop() == 0
        owner.execute("UPDATE fieldagent_schema SET version = 1")
        older = run_hub_command("user", "list", "--database", limited)
        assert (older.returncode, "before its first release" in older.stderr) == (76, True)
        owner.execute("UPDATE fieldagent_schema SET version = 999")
        later = run_hub_command("run", "--database", limited)
        assert (later.returncode, "this program knows" in later.stderr) == (76, True)


def test_database_password_is_read_from_a_file_and_never_shown(tmp_path: Path) -> None:
    """The addresses include an unreadable one. No server answers at these addresses."""
    for address in (
        "postgresql://hub:s3cr%ZZet@db/hub",
        "postgresql://hub:s3cr et@db/hub",
        "postgresql://hub:s3cret@db:port/hub",
        "postgresql://hub:s3cret@[::1/hub",
        "postgresql://hub:s3cret@127.0.0.1:1/hub",
        "postgresql://hub:x@s3cret@127.0.0.1:1/hub",
        "postgresql://hub:s3cr/s3cret@127.0.0.1:1/hub",
        "postgresql://hub:1/s3cret@127.0.0.1:1/hub",
        "postgresql://hub:s3cr?s3cret@127.0.0.1:1/hub",
        "postgresql://hub:s3cr#s3cret@127.0.0.1:1/hub",
        "postgresql://hub:s3cr:s3cret@127.0.0.1:1/hub",
    ):
        with pytest.raises(StoreUnavailable) as refused:
            open_store(address)
        assert "s3cr" not in str(refused.value)
    result = run_hub_command("user", "list", "--database", address)
    assert (result.returncode, "s3cr" in result.stderr + result.stdout) == (69, False)
    settings = tmp_path / "hub.properties"
    settings.write_text(
        "database=postgresql://hub@127.0.0.1:1/hub\ndatabase-password-file=/missing\n"
    )
    result = run_hub_command("user", "list", "--config", str(settings))
    assert "database-password-file /missing cannot be read: No such file" in result.stderr


@pytest.mark.full
@pytest.mark.parametrize("how", ["database-password-file", "PGPASSFILE"])
def test_database_password_from_a_file_works_with_scram(
    how: str, postgres: str, tmp_path: Path
) -> None:
    """A server with its own settings uses SCRAM over TCP."""
    database = new_database(postgres)
    role = f"role_{urlsplit(database).path[6:]}"
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'of ours'".encode())
        ((hba,),) = owner.execute("SHOW hba_file").fetchall()
        line = f"local all {role} scram-sha-256\n"
        text = Path(hba).read_text()
        Path(hba).write_text(line + text)
        owner.execute("SELECT pg_reload_conf()")
        owner.execute(f"GRANT CREATE ON SCHEMA public TO {role}".encode())
    address = database.replace(f"user={ACCOUNT}", f"user={role}")
    settings, secret = tmp_path / "hub.properties", tmp_path / "password"
    lines, environment = f"database={address}\n", {}
    if how == "PGPASSFILE":
        secret.write_text("*:*:*:*:of ours\n")
        environment["PGPASSFILE"] = str(secret)
    else:
        secret.write_text("of ours\n")
        lines += f"database-password-file={secret}\n"
    secret.chmod(0o600)
    settings.write_text(lines)
    try:
        until(
            lambda: run_hub_command("database", "migrate", "--database", address).returncode == 69
        )
        done = run_hub_command("database", "migrate", "--config", str(settings), **environment)
        assert done.returncode == 0, done.stderr
    finally:
        Path(hba).write_text(text)


@pytest.mark.full
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_documented_restore_of_a_backup_works(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The operator copies while the hub runs, continues, loses the database, and restores the
    copy.
    """
    database = str(tmp_path / "hub.sqlite3")
    if store == "postgresql":
        database = new_database(request.getfixturevalue("postgres"))
    copy = tmp_path / "copy"
    alps = Alps(database)

    def by_hand(line: str) -> None:
        path = f"{binaries()}{os.pathsep}{Path(MODULE[0]).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "DATABASE": database, "PATH": path}
        subprocess.run(["sh", "-ec", line], env=environment, check=True, timeout=PATIENCE)

    with alps.kit(tmp_path, f"http://127.0.0.1:{(port := free_port())}") as kit:
        with hub(tmp_path, {"database": database, "port": str(port)}) as running:
            alps.push(port, "before the copy")
            until(lambda: len(contents(kit)) == 1)
            made = run_hub_command("database", "backup", str(copy), "--database", database)
            put_back = []
            if store == "sqlite":
                assert made.returncode == 0, made.stderr
                assert copy.stat().st_mode & 0o777 == 0o600
                again = run_hub_command("database", "backup", str(copy), "--database", database)
                assert (again.returncode, "already exists" in again.stderr) == (65, True)
            else:
                assert made.returncode == 65
                lines = [x.strip() for x in made.stderr.splitlines() if x.startswith("  ")]
                by_hand(lines[0])
                put_back = lines[1:]
            alps.push(port, "after the copy")
            until(lambda: len(contents(kit)) == 2)
            running.kill()
        if store == "sqlite":
            for each in tmp_path.glob("hub.sqlite3*"):
                each.unlink()
            shutil.copy(copy, database)
            put_back = ['fieldagent hub database restored --database "$DATABASE"']
        for line in put_back:
            by_hand(line)
        with hub(tmp_path, {"database": database, "port": str(port)}) as running:
            alps.push(port, "after the restore")
            until(lambda: len(contents(kit)) == 3)
            assert running.stop() == 0
        assert sorted(contents(kit)) == ["after the copy", "after the restore", "before the copy"]


def test_backup_to_a_missing_folder_is_rejected(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    result = run_hub_command(
        "database", "backup", str(tmp_path / "nowhere" / "copy"), "--database", database
    )
    assert result.returncode == 74
    assert "cannot be written: No such file or directory" in result.stderr
    assert "Traceback" not in result.stderr


def test_connection_opened_after_the_end_is_closed(postgres: str) -> None:
    """A thread may still connect while the hub stops. Python warns about an open connection in a
    later test, when it is collected.
    """
    connections = Connections(new_database(postgres), DatabaseOptions())
    connections.end_all()
    assert connections.connect().closed
