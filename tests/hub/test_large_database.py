"""The hub's daily work does not take longer with a long history.

It is counted on SQLite in steps of its virtual machine, which are the same in each run. A missing
or unused index shows as ten times the work over ten times the rows. `python -m
tests.bench.large_hub` measures the same over a million items, also on PostgreSQL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import trio

from fieldagent.http.message import Request
from fieldagent.http.routes import Route
from fieldagent.hub.access.caller import ADMINISTRATOR, Caller
from fieldagent.hub.administration import api as administration
from fieldagent.hub.administration.acts import AdministrationContext
from fieldagent.hub.api.read_api import ReadApi
from fieldagent.hub.api.sos_api import SosApi
from fieldagent.hub.fleet.view import FleetApi
from fieldagent.hub.records.sos import ALARM
from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.opening import open_store
from tests.bench.large_hub import DATE, fill, operations
from tests.http.test_openapi import description

FEW, MANY = 2_000, 20_000
EVERY = 100
"""Steps between two counts."""
MORE = 1.5
"""Allowance for rounding, a deeper index, and some rows when there are fewer than a page."""
SOME = 15_000


class _Counting:
    """Implements `Db`."""

    living_workers = ""
    worker = 1
    takes_lists = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.steps = 0
        connection.set_progress_handler(self._count, EVERY)

    def _count(self) -> None:
        self.steps += EVERY

    def for_update(self, of: str = "") -> str:
        return ""

    def skip_locked(self, of: str = "") -> str:
        return ""

    def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, parameters).fetchall()

    def write(self, sql: str, *parameters: Any) -> None:
        self.execute(sql, *parameters)

    def announce(self, topic: str) -> None:
        """Ignore it, because there is no listener."""


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    paths = {}
    for items in (FEW, MANY):
        paths[items] = tmp_path_factory.mktemp("large") / "hub.sqlite3"
        store = open_store(str(paths[items]))
        store.run_once(partial(fill, items=items))
        store.close()
    return paths


def count_steps(database: Path, operation: Callable[[Db], Any]) -> int:
    connection = sqlite3.connect(database, isolation_level=None)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("BEGIN")
        counting = _Counting(connection)
        operation(counting)
        connection.set_progress_handler(None, 0)
        connection.execute("ROLLBACK")
        return counting.steps
    finally:
        connection.close()


@pytest.mark.parametrize("what", operations(FEW))
def test_daily_work_time_is_independent_of_the_database_size(
    databases: dict[int, Path], what: str
) -> None:
    few, many = (
        count_steps(database, operations(items)[what]) for items, database in databases.items()
    )
    assert many <= MORE * few + SOME, f"{few} steps over few, {many} over many"


API = description("hub")
WHOLE = {
    "/api/fleet": "5 000 kits at most, which are compared with each other",
    "/api/groups": "somebody makes each by hand",
    "/api/keys": "as groups",
    "/api/tokens": "as groups",
    "/api/webhooks": "as groups",
    "/api/contacts": "as groups, in the order in which they are told",
    "/api/fences": "as groups; the map shows all of them",
    "/api/routes": "those under way, and the newest that have ended",
    "/api/chain": "the steps that contacts make",
    "/api/sos/words": "a fixed list",
    "/api/devices/{id}/usage": "a row a day, of the days that are asked for",
}
"""Lists that are returned complete, and their limits."""
PAGED = (
    *("/api/items", "/api/pushes", "/api/positions", "/api/deliveries", "/api/devices"),
    *("/api/users", "/api/sos", "/api/alarms", "/api/audit", "/api/devices/{id}/commands"),
    *("/api/webhook-failures", "/api/dead-letters"),
)
ASKED = {"/api/deliveries": (("device", "8"),)}


def test_each_list_of_the_api_is_paged_or_limited() -> None:
    paged: set[str] = set()
    whole: set[str] = set()
    for path, methods in API["paths"].items():
        # An object with its own id is one thing, whatever lists it contains.
        if path.startswith("/api/") and "get" in methods and not path.endswith("/{id}"):
            names = _lists(methods["get"])
            if len(names) == 1:
                (paged if {"before", "limit"} <= _parameters(methods["get"]) else whole).add(path)
    # An export has its own maximum.
    assert whole - {"/api/sos/export", "/api/alarms/export"} == WHOLE.keys() & API["paths"].keys()
    assert paged == set(PAGED)


def _lists(operation: Any) -> list[str]:
    """Return names of the arrays in an answer."""
    content = operation["responses"].get("200", {}).get("content", {})
    schema: Any = next((each["schema"] for kind, each in content.items() if "json" in kind), {})
    members = _resolve(schema).get("properties", {})
    return [name for name, each in members.items() if _resolve(each).get("type") == "array"]


def _resolve(schema: Any) -> Any:
    """Return the schema, or the target of its reference."""
    if "$ref" not in schema:
        return schema
    return API["components"]["schemas"][schema["$ref"].rpartition("/")[2]]


def _parameters(operation: Any) -> set[str]:
    known = API["components"]["parameters"]
    parameters = operation.get("parameters", [])
    shared = [known[each["$ref"].rpartition("/")[2]] for each in parameters if "$ref" in each]
    return {each["name"] for each in [*parameters, *shared] if "name" in each}


@pytest.mark.parametrize("path", PAGED)
def test_page_time_is_independent_of_the_database_size(
    databases: dict[int, Path], path: str
) -> None:
    """The API's own route reads a page of two rows."""
    few, many = (
        count_steps(database, partial(_request_page, path)) for database in databases.values()
    )
    assert many <= MORE * few + SOME, f"{few} steps over few, {many} over many"


def _request_page(path: str, db: Db) -> None:
    async def read(look: Callable[[Db], Any]) -> Any:
        return look(db)

    store = Mock(read=read)
    caller = Caller(1, "bench", 1, frozenset(), 1, "User", "1", ADMINISTRATOR, True)
    (route,) = (each for each in _routes(store) if (each.method, each.pattern) == ("GET", path))
    request = Request("GET", path, (("limit", "2"), *ASKED.get(path, ())), {})
    more = {"id": "8"} if "{id}" in path else {}
    assert trio.run(partial(route.handler, request, caller=caller, **more)).status == 200


def _routes(store: Any) -> list[Route]:
    def clock() -> float:
        return float(DATE)

    own = (ReadApi, SosApi, partial(SosApi, kind=ALARM), FleetApi)
    routes = [route for each in own for route in each(store, Mock(), clock=clock).make_routes()]
    return routes + administration.make_routes(
        AdministrationContext(store, Mock(), clock=clock), Mock(), Mock()
    )
