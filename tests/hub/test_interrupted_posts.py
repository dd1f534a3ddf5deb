"""A webhook has accepted an item, and then the hub stops or its database fails: the webhook gets it
once.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fieldagent.hub.store.opening import open_store
from tests.hub.test_cluster import cut_off
from tests.hub.test_journey import Receiver, posted, receiver
from tests.postgres import new_database
from tests.processes import PATIENCE, Hub, administer, agent, hub, until


@contextmanager
def hub_with_webhook(
    tmp_path: Path, database: str, before_answer: Callable[[], None]
) -> Iterator[tuple[Hub, Receiver, dict[str, Any]]]:
    """Yield a hub, its webhook's receiver, and the settings of a kit."""
    administer(database, "init", "Alps")
    ada = administer(database, "user", "add", "Ada")["id"]
    device = administer(database, "device", "add", "kit", "--user", str(ada))
    settings = {"database": database, "webhook-allow": "127.0.0.0/8"}
    with receiver(before_answer=before_answer) as there, hub(tmp_path, settings) as running:
        administer(database, "webhook", "add", there.url, "--untried")
        linked = {
            "satellite-port": None,
            "hub-address": running.address,
            "hub-token": device["hub-token"],
        }
        yield running, there, linked


def list_states(database: str) -> list[str]:
    store = open_store(database)
    try:
        return [
            state
            for (state,) in store.run_once(
                lambda db: db.execute("SELECT state FROM webhook_delivery")
            )
        ]
    finally:
        store.close()


def is_closed(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE).close()
    except OSError:
        return True
    return False


def test_running_post_finishes_when_the_hub_stops(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    came = threading.Event()

    def hold_back() -> None:
        came.set()
        until(lambda: is_closed(running.port))

    with hub_with_webhook(tmp_path, database, hold_back) as (running, there, linked):
        with agent(tmp_path, linked) as kit:
            kit.post("once")
            assert came.wait(PATIENCE)
        assert running.stop() == 0
        assert posted(there) == ["once"]
        assert list_states(database) == ["handed"]


def test_completed_post_counts_although_the_database_fails_before_storage(
    postgres: str, tmp_path: Path
) -> None:
    database = new_database(postgres)
    gone = threading.Event()

    def cut_once() -> None:
        if not gone.is_set():
            cut_off(database)
            gone.set()

    with hub_with_webhook(tmp_path, database, cut_once) as (_, there, linked):
        with agent(tmp_path, linked) as kit:
            kit.post("once")
            # The connection of the test would be cut too.
            assert gone.wait(PATIENCE)
            until(lambda: list_states(database) == ["handed"])
        assert posted(there) == ["once"]
