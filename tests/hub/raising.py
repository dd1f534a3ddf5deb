"""A hub and a kit that raises an SOS."""

from __future__ import annotations

from typing import Any

from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.opening import open_store
from tests.processes import Agent, Hub, administer, until

ADDRESS = "https://hub.example.org"
BEHIND = {"console-address": ADDRESS, "trusted-proxies": "127.0.0.1/32"}
"""Settings of a hub behind a proxy with TLS. The tests connect without the proxy."""
HERE = {"latitude": 46.5, "longitude": 7.25}


def settle_in(database: str) -> str:
    """Add Ada with a kit and the dispatcher Olga. Return the kit's token."""
    administer(database, "init", "Alps")
    for name in ("Ada", "Olga"):
        administer(database, "user", "add", name)
    administer(database, "user", "role", "Olga", "dispatcher")
    return str(administer(database, "device", "add", "kit-ada", "--user", "Ada")["hub-token"])


def kit_of(running: Hub, token: str) -> dict[str, str | None]:
    return {"satellite-port": None, "hub-address": running.address, "hub-token": token}


def raise_sos(kit: Agent, database: str) -> None:
    """Raise an SOS after the hub knows the kit's position."""
    kit.call("POST", "/api/package", {"location": HERE})
    until(lambda: changed(database, "SELECT 1 FROM contact WHERE position_at IS NOT NULL"))
    assert kit.call("POST", "/api/sos", {"text": "leg broken"}).status == 201


def timeline(database: str, id_: int = 1) -> list[tuple[str, str, str]]:
    """Return the timeline of an incident: event, person and detail of each step."""
    events = administer(database, "sos", "show", str(id_))["timeline"]
    return [(e["event"], (e["by"] or {}).get("name", ""), e["detail"]) for e in events]


def changed(database: str, sql: str) -> Any:
    store = open_store(database)

    def run(db: Db) -> Any:
        return db.execute(sql)

    try:
        return store.run_once(run)
    finally:
        store.close()
