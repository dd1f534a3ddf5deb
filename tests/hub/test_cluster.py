"""Three hub processes on one PostgreSQL. One of them is killed during a load."""

from __future__ import annotations

import json
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import psycopg

from tests.postgres import new_database
from tests.processes import PATIENCE, Agent, Hub, administer, agent, hub, until

PUSHES = 150
HUBS = 3
KITS = 3


class Balancer:
    """A load balancer: each connection goes to the next hub that answers."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = ports
        self._turn = 0
        self._peers: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                self._connect(peer)

    def _connect(self, peer: socket.socket) -> None:
        for _ in self.ports:
            self._turn += 1
            port = self.ports[self._turn % len(self.ports)]
            with suppress(OSError):
                hub = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
                hub.settimeout(None)
                threading.Thread(target=self._relay, args=(peer, hub), daemon=True).start()
                return
        peer.close()

    def _relay(self, peer: socket.socket, hub: socket.socket) -> None:
        self._peers.add(peer)
        try:
            _relay(peer, hub)
        finally:
            self._peers.discard(peer)

    def cut(self) -> None:
        """End all connections, like a mast that fails."""
        for peer in [*self._peers]:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


def _relay(peer: socket.socket, hub: socket.socket) -> None:
    with peer, hub:
        back = threading.Thread(target=_pour, args=(hub, peer), daemon=True)
        back.start()
        _pour(peer, hub)
        back.join()


def _pour(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(65_536):
            other.sendall(data)
    for end in (one, other):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def balancer(ports: list[int]) -> Iterator[Balancer]:
    running = Balancer(ports)
    try:
        yield running
    finally:
        running.close()


def push(port: int, proof: dict[str, str], body: dict[str, Any]) -> None:
    """Push like the client: repeat with the same key until it is accepted."""
    headers = {**proof, "Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}
    deadline = time.monotonic() + PATIENCE
    while True:
        connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            connection.request("POST", "/api/package", json.dumps(body), headers)
            response = connection.getresponse()
            if response.status == 200:
                return
            assert response.status >= 500, response.read()
        except (OSError, HTTPException):
            pass
        finally:
            connection.close()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def contents(kit: Agent) -> list[str]:
    listed = kit.call("GET", "/api/inbound").body["payloads"]
    return [entry["body"]["payloads"][0]["events"][0]["content"] for entry in listed]


def test_killing_one_of_three_hubs_loses_and_doubles_no_item(postgres: str, tmp_path: Path) -> None:
    database = new_database(postgres)
    first = administer(database, "init", "Alps")
    key = administer(database, "key", "add", "load", "--per-minute", "60000", "--burst", "9999")
    proof = {"x-api-key": key["apiKey"], "Authorization": f"Bearer {first['token']}"}
    with ExitStack() as stack:
        hubs: list[Hub] = []
        for number in range(HUBS):
            home = tmp_path / f"hub{number}"
            home.mkdir()
            hubs.append(stack.enter_context(hub(home, {"database": database})))
        front = stack.enter_context(balancer([each.port for each in hubs]))
        kits: list[Agent] = []
        members = []
        for number in range(KITS):
            home = tmp_path / f"kit{number}"
            home.mkdir()
            member = administer(database, "user", "add", f"kit {number}")["id"]
            device = administer(database, "device", "add", f"kit {number}", "--user", str(member))
            settings: dict[str, Any] = {
                "satellite-port": None,
                "hub-address": f"http://127.0.0.1:{front.port}",
                "hub-token": device["hub-token"],
            }
            kits.append(stack.enter_context(agent(home, settings)))
            members.append(member)
        for kit in kits:
            kit.expect("linked to the hub")

        def linked_to(process: Hub) -> bool:
            return any("is linked" in line for line in process.output())

        victim = next(process for process in hubs if linked_to(process))
        for number in range(PUSHES):
            body = {
                "sourceUserId": first["sourceUserId"],
                "workspaceId": first["workspaceId"],
                "targetUserId": members[number % KITS],
                "message": {"content": f"push {number}"},
            }
            push(front.port, proof, body)
            if number == PUSHES // 2:
                victim.kill()
        expected = [
            sorted(f"push {n}" for n in range(PUSHES) if n % KITS == k) for k in range(KITS)
        ]
        until(lambda: sum(len(contents(kit)) for kit in kits) >= PUSHES)
        assert [sorted(contents(kit)) for kit in kits] == expected
        # Receipts arrive too, independent of the processes of the item and of the link.
        sent = kits[0].call("POST", "/api/package", {"message": {"content": "from kit 0"}}).body
        until(
            lambda: (
                len(kits[0].call("GET", f"/api/package/{sent['id']}").body["receipts"]) == KITS - 1
            )
        )
        assert [contents(kit).count("from kit 0") for kit in kits] == [0, 1, 1]


def test_hub_survives_a_restart_of_the_database(postgres: str, tmp_path: Path) -> None:
    """Items that were accepted before are delivered later. Pushes during the restart get 503."""
    database = new_database(postgres)
    first = administer(database, "init", "Alps")
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    member = administer(database, "user", "add", "kit")["id"]
    device = administer(database, "device", "add", "kit", "--user", str(member))
    body = {
        "sourceUserId": first["sourceUserId"],
        "workspaceId": first["workspaceId"],
        "targetUserId": member,
        "message": {"content": "before"},
    }
    with ExitStack() as stack:
        running = stack.enter_context(hub(tmp_path, {"database": database}))
        push(running.port, proof, body)
        cut_off(database)
        push(running.port, proof, {**body, "message": {"content": "after"}})
        settings: dict[str, Any] = {
            "satellite-port": None,
            "hub-address": running.address,
            "hub-token": device["hub-token"],
        }
        kit = stack.enter_context(agent(tmp_path, settings))
        until(lambda: len(contents(kit)) >= 2)
        cut_off(database)
        push(running.port, proof, {**body, "message": {"content": "linked"}})
        until(lambda: len(contents(kit)) >= 3)
        assert sorted(contents(kit)) == ["after", "before", "linked"]


def cut_off(database: str) -> None:
    """End all other connections to the database, as a restart of the server does."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
