"""Opens the store that the setting `database` describes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from fieldagent.hub.store.contract import DatabaseOptions, Store
from fieldagent.store.group import StoreUnavailable

if TYPE_CHECKING:
    from fieldagent.hub.store.moving import DatabaseSide


def is_postgres(database: str) -> bool:
    """Return True if the setting names a PostgreSQL database. Otherwise it is a file path."""
    return database.startswith(("postgresql://", "postgres://"))


def open_store(database: str, options: DatabaseOptions = DatabaseOptions()) -> Store:  # noqa: B008
    """Open the PostgreSQL database at `postgresql://…`, or the SQLite file at a path. A missing
    file is created.

    Raises StoreUnavailable (also as WrongTableVersion), or StoreFailed for a file. The text
    contains the fix.
    """
    if is_postgres(database):
        try:
            from fieldagent.hub.store.postgres import PostgresStore
        except ImportError as error:
            raise StoreUnavailable(
                f"PostgreSQL needs psycopg 3 ({error}): apt-get install"
                " python3-psycopg, or pip install 'psycopg[binary]'"
            ) from error

        return PostgresStore(database, options)
    from fieldagent.hub.store.sqlite import SqliteStore

    return SqliteStore(database)


def open_alone(database: str, options: DatabaseOptions) -> AbstractContextManager[DatabaseSide]:
    """Open a database with the hub's tables for exclusive use, in one transaction. If the
    transaction is not committed, it changes nothing.

    Raises NotMoved if another program uses the database, StoreUnavailable, or StoreFailed.
    """
    from fieldagent.hub.store.moving import list_hub_tables, open_sqlite_side

    if is_postgres(database):
        from fieldagent.hub.store.postgres_moving import open_postgres_side

        return open_postgres_side(database, options, list_hub_tables())
    return open_sqlite_side(Path(database))
