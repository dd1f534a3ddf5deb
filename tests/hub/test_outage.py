"""The hub's database goes away and returns: the effects for people, callers, kits and probes.

A hub process and an agent, with a wire between the hub and PostgreSQL that a test can cut.
"""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.hub.alps import Alps
from tests.hub.test_cluster import contents, push
from tests.postgres import new_database
from tests.processes import PATIENCE, Hub, administer, agent, hub, until

SOON = 15.0
"""Seconds within which a hub without a database answers. It takes up to two."""


class DatabaseWire:
    """A TCP port that leads to PostgreSQL's socket, until a test cuts it."""

    def __init__(self, address: str) -> None:
        folder = parse_qs(urlsplit(address).query)["host"][0]
        self._server = f"{folder}/.s.PGSQL.5432"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.database = f"postgresql://postgres@127.0.0.1:{self.port}{urlsplit(address).path}"
        self.how = "OK"
        self._ends: list[socket.socket] = []
        self._pours: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def breaks(self, how: str) -> None:
        """Cut the wire. `refused`: all connections end, as when the server stops. `silent`: they
        stay open without data, as when a network drops everything.
        """
        self.how = how
        if how == "refused":
            for end in self._ends:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                if self.how == "refused":
                    here.close()
                    continue
                there = socket.socket(socket.AF_UNIX)
                there.connect(self._server)
                self._ends += [here, there]
                for source, target in ((here, there), (there, here)):
                    pour = threading.Thread(target=self._pour, args=(source, target), daemon=True)
                    self._pours.append(pour)
                    pour.start()

    def _pour(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if self.how == "OK":
                    target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.breaks("refused")
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in [self._accepting, *self._pours]:
            thread.join(PATIENCE)
        for end in [self._listener, *self._ends]:
            end.close()


@contextmanager
def database_wire(address: str) -> Iterator[DatabaseWire]:
    running = DatabaseWire(address)
    try:
        yield running
    finally:
        running.close()


def call(
    running: Hub, method: str, path: str, headers: Mapping[str, str] = {}, body: str | None = None
) -> tuple[int, dict[str, str], str]:
    connection = HTTPConnection("127.0.0.1", running.port, timeout=SOON)
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        fields = {name.lower(): value for name, value in response.getheaders()}
        return response.status, fields, response.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("how", [pytest.param("refused", marks=pytest.mark.full), "silent"])
def test_hub_survives_loss_and_return_of_the_database(
    how: str, postgres: str, tmp_path: Path
) -> None:
    database = new_database(postgres)
    alps = Alps(database)
    with ExitStack() as stack:
        way = stack.enter_context(database_wire(database))
        running = stack.enter_context(hub(tmp_path, {"database": way.database}))
        kit = stack.enter_context(alps.kit(tmp_path, running.address))
        kit.expect("linked to the hub")
        alps.push(running.port, "before")

        way.breaks(how)
        until(lambda: call(running, "GET", "/healthz")[0] == 503)
        assert call(running, "GET", "/livez")[0] == 200
        assert "fieldagent_hub_database_up 0" in call(running, "GET", "/metrics")[2]
        kit.expect("no link to the hub: the link ended: the hub cannot use its database now")
        headers = {**alps.proof, "Content-Type": "application/json"}
        text = json.dumps({**alps.body, "message": {"content": "meanwhile"}})
        status, answered, _ = call(running, "POST", "/api/package", headers, text)
        assert status == 503
        assert int(answered["retry-after"]) > 0

        running.expect("cannot be used")
        way.how = "OK"
        kit.expect("linked to the hub")
        until(lambda: call(running, "GET", "/healthz")[0] == 200)
        alps.push(running.port, "after")
        until(lambda: len(contents(kit)) == 2)
        assert sorted(contents(kit)) == ["after", "before"]
        assert running.stop() == 0
    lines = running.output()
    assert len([line for line in lines if "cannot be used" in line]) == 1, lines
    assert len([line for line in lines if "answers again" in line]) == 1, lines
    trouble = [line for line in lines if "Traceback" in line or "mistake" in line]
    assert trouble == []
    assert "another agent" not in "\n".join(kit.output())


def test_disabled_device_loses_its_link_at_once_and_permanently(
    database: str, tmp_path: Path
) -> None:
    administer(database, "init", "Alps")
    administer(database, "user", "add", "Ada")
    token = administer(database, "device", "add", "kit", "--user", "Ada")["hub-token"]
    with (
        hub(tmp_path, {"database": database}) as running,
        agent(
            tmp_path,
            {"satellite-port": None, "hub-token": token, "hub-address": running.address},
        ) as kit,
    ):
        kit.expect("linked to the hub")
        administer(database, "device", "disable", "kit")
        kit.expect("no link to the hub: the hub ended the link for good: is the device disabled")


def test_push_to_a_locked_database_returns_503_without_traceback(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    whose = {"sourceUserId": first["sourceUserId"], "workspaceId": first["workspaceId"]}
    with hub(tmp_path, {"database": database}) as running:
        other = sqlite3.connect(database, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        headers = {**proof, "Content-Type": "application/json"}
        text = json.dumps({**whose, "data": {"payload": "AA=="}})
        status, answered, _ = call(running, "POST", "/api/package", headers, text)
        assert (status, "retry-after" in answered) == (503, True)
        other.execute("ROLLBACK")
        other.close()
        push(running.port, proof, {**whose, "data": {"payload": "AA=="}})
        assert "Traceback" not in "\n".join(running.output())
