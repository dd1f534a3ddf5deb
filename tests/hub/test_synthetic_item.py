"""The hub's own test item takes the whole route of other items: it reports where it stops, and
disturbs nothing.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import sqlite3
import ssl
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trustme

from fieldagent.hub.access.directory import SYNTHETIC
from fieldagent.hub.settings import parse_settings
from fieldagent.hub.store.opening import open_store
from fieldagent.system.properties import InvalidSettings
from tests.hub.alps import Alps
from tests.hub.test_outage import call
from tests.hub.test_takes_writes import on_disk
from tests.machine import fill, small_disk
from tests.postgres import ACCOUNT, new_database, server
from tests.processes import Hub, administer, free_port, hub, until

QUICK = (
    "import sys; from fieldagent.hub.service import synthetic_item as it;"
    " it.ITEM_INTERVAL_S, it.ITEM_TIMEOUT_S = 0.5, {overdue};"
    " from fieldagent.__main__ import main; sys.exit(main())"
)
"""The program with half a second instead of a minute."""
WAY = "synthetic items are complete again: pushed, stored and posted"
STOPPED = "the synthetic item of this minute stopped at "


@contextmanager
def hub_with_synthetic_item(
    home: Path,
    database: str,
    *,
    overdue: float = 4.0,
    switch: str = "on",
    more: Mapping[str, str] = {},
    ca_file: str = "",
) -> Iterator[Hub]:
    home.mkdir(exist_ok=True)
    settings = {"database": database, "synthetic-item": switch, **more}
    command = [sys.executable, "-c", QUICK.format(overdue=overdue)]
    environment = {"SSL_CERT_FILE": ca_file} if ca_file else {}
    with hub(home, settings, command, **environment) as running:
        yield running


def is_postgres(database: str) -> bool:
    return database.startswith("postgresql")


def run_sql(database: str, sql: str) -> list[tuple[Any, ...]]:
    store = open_store(database)
    try:
        return store.run_once(lambda db: db.execute(sql))
    finally:
        store.close()


def read_metric(running: Hub, name: str) -> float:
    metrics = call(running, "GET", "/metrics")[2]
    values = re.findall(rf"^fieldagent_hub_{name} (\S+)$", metrics, re.MULTILINE)
    assert len(values) == 1, metrics
    return float(values[0])


def count_entered(database: str) -> int:
    """Return the number of items that the database has ever had."""
    if is_postgres(database):
        sql = "SELECT last_value FROM pg_sequences WHERE sequencename = 'item_id_seq'"
    else:
        sql = "SELECT seq FROM sqlite_sequence WHERE name = 'item'"
    rows = run_sql(database, sql)
    return int(rows[0][0] or 0) if rows else 0


def test_synthetic_items_travel_the_whole_route_and_leave_no_rows(
    database: str, tmp_path: Path
) -> None:
    open_store(database).close()
    # Webhooks at private addresses are forbidden here, but the hub reaches its own receiver.
    with hub_with_synthetic_item(tmp_path, database) as running:
        running.expect(WAY)
        alps = Alps(database)  # the first workspace, which is the default
        before = count_entered(database)
        until(lambda: count_entered(database) >= before + 4)
        alps.push(running.port, "of somebody")
        age = read_metric(running, "synthetic_item_seconds")
        until(lambda: read_metric(running, "synthetic_item_seconds") < age)
        assert read_metric(running, "pushes_accepted_total") == 1
        assert read_metric(running, "items") <= 2
        metrics = call(running, "GET", "/metrics")[2]
        assert 'webhook_posts_total{result="handed"} 0' in metrics
        assert running.stop() == 0
        lines = running.output()
    assert len([line for line in lines if "event=push" in line]) == 1
    assert [line for line in lines if "event=webhook" in line or STOPPED in line] == []
    # One may be in transit when the hub ends. It is removed ten minutes later.
    assert run_sql(database, "SELECT count(*) FROM item")[0][0] <= 2
    assert run_sql(database, "SELECT count(*) FROM audit WHERE action = 'push'")[0][0] <= 2
    assert run_sql(database, "SELECT count(*) FROM webhook_delivery")[0][0] <= 1


FAILS = {
    "sqlite": (
        "CREATE TRIGGER stuck BEFORE UPDATE OF claimed_by ON webhook_delivery"
        " BEGIN SELECT RAISE(ABORT, 'nobody claims anything'); END",
        "DROP TRIGGER stuck",
    ),
    "postgresql": (
        "CREATE FUNCTION stuck() RETURNS trigger AS $$ BEGIN RAISE 'nobody claims anything'; END $$"
        " LANGUAGE plpgsql;"
        " CREATE TRIGGER stuck BEFORE UPDATE OF claimed_by ON webhook_delivery"
        " FOR EACH ROW EXECUTE FUNCTION stuck()",
        "DROP TRIGGER stuck ON webhook_delivery; DROP FUNCTION stuck",
    ),
}


@contextmanager
def locked_table(database: str) -> Iterator[None]:
    """Lock the table that each push writes."""
    if is_postgres(database):
        with psycopg.connect(database) as other:
            other.execute("LOCK TABLE item IN ACCESS EXCLUSIVE MODE")
            yield
        return
    with closing(sqlite3.connect(database)) as other_program:
        other_program.execute("BEGIN IMMEDIATE")
        yield


@pytest.mark.full
def test_stopped_synthetic_item_is_logged_with_its_stage_and_resumes(
    database: str, tmp_path: Path
) -> None:
    Alps(database)
    stick, release = FAILS["postgresql" if is_postgres(database) else "sqlite"]
    with hub_with_synthetic_item(tmp_path, database, overdue=20.0) as running:
        running.expect(WAY)
        run_sql(database, stick)
        running.expect(f"{STOPPED}hook: no progress for 20 s: no hub has begun to post it")
        run_sql(database, release)
        running.expect(WAY)
        with locked_table(database):
            running.expect(f"{STOPPED}store: ")
        running.expect(WAY)
        running.kill()
    with hub_with_synthetic_item(tmp_path, database) as running:
        running.expect(WAY)
        assert len(administer(database, "workspace", "list")) == 2
        assert len(administer(database, "webhook", "list", "--workspace", SYNTHETIC)) == 1
        (key,) = administer(database, "key", "list", "--workspace", SYNTHETIC)
        administer(database, "key", "revoke", str(key["id"]), "--workspace", SYNTHETIC)
        line = running.expect(f"{STOPPED}push: ")
        (command,) = re.findall("`fieldagent hub (.+)`", line)
        administer(database, *shlex.split(command))
        running.expect(WAY)
        assert running.stop() == 0


@pytest.mark.full
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_synthetic_item_detects_a_full_disk(engine: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        disk = stack.enter_context(small_disk(folder / "disk"))
        database = str(disk / "hub.sqlite3")
        if engine == "postgresql":
            shutil.chown(disk, ACCOUNT)
            database = on_disk(stack.enter_context(server()), disk)
        alps = Alps(database)
        running = stack.enter_context(hub_with_synthetic_item(tmp_path, database))
        running.expect(WAY)
        others = fill(disk)

        def pushed() -> int:
            headers = {"Content-Type": "application/json", **alps.proof}
            body = json.dumps({**alps.body, "message": {"content": "m" * 5_000}})
            return call(running, "POST", "/api/package", headers, body)[0]

        until(lambda: pushed() == 507)
        running.expect(f"{STOPPED}store: ")
        others.unlink()
        running.expect(WAY)
        assert running.stop() == 0


@pytest.mark.full
def test_each_hub_sends_its_own_synthetic_item(postgres: str, tmp_path: Path) -> None:
    database = new_database(postgres)
    Alps(database)
    with (
        hub_with_synthetic_item(tmp_path / "one", database) as one,
        hub_with_synthetic_item(tmp_path / "other", database) as other,
    ):
        for each in (one, other):
            each.expect(WAY)
        other.kill()
        before = count_entered(database)
        until(lambda: count_entered(database) >= before + 5)
        assert [line for line in one.output() if STOPPED in line] == []
        with hub_with_synthetic_item(tmp_path / "third", database, switch="off") as third:
            third.expect("another hub of this database has synthetic-item=on: set it at this one")
            assert third.stop() == 0
        assert one.stop() == 0
    assert len(administer(database, "workspace", "list")) == 2


class Listener:
    """A listener with the name `localhost` from a private authority. `files` are the files in a
    hub's settings.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.authority = trustme.CA()
        (home / "ca.pem").write_bytes(self.authority.cert_pem.bytes())
        self.ca_file = str(home / "ca.pem")
        self.files = {name: str(home / name) for name in ("tls-certificate", "tls-key")}

    def issue(self, *, ended: timedelta = timedelta(days=-1)) -> trustme.LeafCert:
        """Write a certificate that expired that long ago."""
        end = datetime.now(UTC) - ended
        issued = self.authority.issue_cert("localhost", not_after=end)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        (self.home / "tls-certificate").write_bytes(chain)
        (self.home / "tls-key").write_bytes(issued.private_key_pem.bytes())
        return issued


def test_synthetic_item_is_pushed_to_the_configured_address(tmp_path: Path) -> None:
    listener, port, inside = Listener(tmp_path), free_port(), free_port()
    listener.issue()
    database, address = str(tmp_path / "hub.sqlite3"), f"https://localhost:{port}"
    Alps(database)
    more = {**listener.files, "port": str(port), "admin-listen": f"127.0.0.1:{inside}"}
    with hub_with_synthetic_item(
        tmp_path, database, switch=address, more=more, ca_file=listener.ca_file
    ) as running:

        def anew() -> None:
            running.process.send_signal(signal.SIGHUP)

        running.expect("event=push")
        running.expect(WAY)
        listener.issue(ended=timedelta(hours=1))
        anew()
        untrusted = "the certificate is not trusted: certificate has expired"
        running.expect(f"{STOPPED}push: {address}: {untrusted}")
        running.port = inside
        age = read_metric(running, "synthetic_item_seconds")
        until(lambda: read_metric(running, "synthetic_item_seconds") > age + 1)
        listener.issue()
        anew()
        running.expect(WAY)
        until(lambda: read_metric(running, "synthetic_item_seconds") < age)
        assert read_metric(running, "pushes_accepted_total") >= 2
        assert running.stop() == 0


class Unavailable(BaseHTTPRequestHandler):
    """The answer of a proxy whose hub is away."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(503)
        self.end_headers()
        self.wfile.write(b"<html>No server is available.</html>")

    def log_message(self, *_: object) -> None:
        pass


def test_proxy_without_a_hub_is_not_reported_as_a_database_fault(tmp_path: Path) -> None:
    listener = Listener(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listener.issue().configure_cert(tls)
    database = str(tmp_path / "hub.sqlite3")
    Alps(database)
    with HTTPServer(("127.0.0.1", 0), Unavailable) as proxy:
        proxy.socket = tls.wrap_socket(proxy.socket, server_side=True)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        address = f"https://localhost:{proxy.server_port}"
        with hub_with_synthetic_item(
            tmp_path, database, switch=address, ca_file=listener.ca_file
        ) as running:
            running.expect(f"{STOPPED}push: {address}: answered 503")
            proxy.shutdown()
            proxy.server_close()
            running.expect(f"{STOPPED}push: {address}: connection refused")
            assert running.stop() == 0


@pytest.mark.parametrize("switch", ["yes", "http://hub.example.org", "https://192.0.2.1"])
def test_invalid_synthetic_item_address_is_rejected(switch: str) -> None:
    with pytest.raises(InvalidSettings, match="must be off, on, or https:// and a name"):
        parse_settings(f"synthetic-item={switch}", Path("hub.properties"))
