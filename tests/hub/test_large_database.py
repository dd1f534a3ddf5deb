"""What the hub does all day does not take longer because much has happened before.

Counted on SQLite, in steps of its virtual machine, which are the same at each run: an index that is
missing, or one that its planner does not take, shows as ten times the work over ten times the rows.
`python -m tests.bench.large_hub` times the same over a million items, on PostgreSQL too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.opening import open_store
from tests.bench.large_hub import fill, operations

FEW, MANY = 2_000, 20_000
EVERY = 100
"""Steps between two counts."""
MORE = 1.5
"""What rounding and a deeper index may add, and some rows where few are fewer than are taken."""
SOME = 15_000


class _Counting:
    """Implements `Db`."""

    skip_locked = for_update = living_workers = ""
    worker = 1
    takes_lists = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.steps = 0
        connection.set_progress_handler(self._count, EVERY)

    def _count(self) -> None:
        self.steps += EVERY

    def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, parameters).fetchall()

    def write(self, sql: str, *parameters: Any) -> None:
        self.execute(sql, *parameters)

    def announce(self, topic: str) -> None:
        """Nobody listens."""


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    found = {}
    for items in (FEW, MANY):
        found[items] = tmp_path_factory.mktemp("large") / "hub.sqlite3"
        store = open_store(str(found[items]))
        store.once(partial(fill, items=items))
        store.close()
    return found


def steps(database: Path, operation: Callable[[Db], Any]) -> int:
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
def test_it_takes_no_longer_over_much(databases: dict[int, Path], what: str) -> None:
    few, many = (steps(database, operations(items)[what]) for items, database in databases.items())
    assert many <= MORE * few + SOME, f"{few} steps over few, {many} over many"
