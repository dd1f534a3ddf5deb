"""The first workspace of a hub, with one kit. Most tests of a hub with an agent start with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.hub.test_cluster import push
from tests.processes import Agent, administer, agent


class Alps:
    """A workspace with a kit in that database."""

    def __init__(self, database: str) -> None:
        first = administer(database, "init", "Alps")
        self.proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
        self.member = administer(database, "user", "add", "kit")["id"]
        device = administer(database, "device", "add", "kit", "--user", str(self.member))
        self.token = device["hub-token"]
        self.body: dict[str, Any] = {
            "sourceUserId": first["sourceUserId"],
            "workspaceId": first["workspaceId"],
            "targetUserId": self.member,
        }

    def push(self, port: int, content: str) -> None:
        push(port, self.proof, {**self.body, "message": {"content": content}})

    @contextmanager
    def kit(self, home: Path, address: str) -> Iterator[Agent]:
        settings = {"satellite-port": None, "hub-token": self.token, "hub-address": address}
        with agent(home, settings) as running:
            yield running
