"""Runs each test that uses `database` on SQLite and on PostgreSQL.

`tests/run` uses PostgreSQL only in the files of `BOTH`, whose subject differs between the two.
`tests/run full` uses it in all files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fieldagent.hub.store.contract import Store
from fieldagent.hub.store.opening import open_store
from tests.postgres import new_database, server

HERE = Path(__file__).parent
BOTH = {
    HERE / f"test_{name}.py"
    for name in (
        *("claims", "exchange", "kit_items", "large_ids", "lease", "mt_copies", "outage"),
        *("parcels", "postgres", "rebuilding", "repeats", "rollback", "store"),
    )
} | {HERE.parent / f"extensions/desk/test_{name}.py" for name in ("alarm", "claims")}
"""Files whose PostgreSQL half runs in each `tests/run`."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        parameters = (
            item.callspec.params
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else {}
        )
        if parameters.get("database") == "postgresql" and item.path not in BOTH:
            item.add_marker(pytest.mark.full)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with server() as running:
        yield running.address


@pytest.fixture(scope="session")
def template(postgres: str) -> str:
    """Return the name of a database with the hub's tables: a copy costs a third of making them."""
    address = new_database(postgres)
    open_store(address).close()
    return urlsplit(address).path.removeprefix("/")


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty database, for `open_store`."""
    if request.param == "sqlite":
        return str(tmp_path / "hub.sqlite3")
    postgres, template = (request.getfixturevalue(each) for each in ("postgres", "template"))
    return new_database(postgres, template)


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    store = open_store(database)
    yield store
    store.close()
