"""Every test of the store's users runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldagent.hub.store.contract import Store
from fieldagent.hub.store.opening import open_store
from tests.postgres import new_database, server


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with server() as running:
        yield running.address


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database, for `open_store`."""
    if request.param == "sqlite":
        return str(tmp_path / "hub.sqlite3")
    return new_database(request.getfixturevalue("postgres"))


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    store = open_store(database)
    yield store
    store.close()
