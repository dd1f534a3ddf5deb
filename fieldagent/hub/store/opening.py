"""Opens the store that the settings name."""

from __future__ import annotations

from fieldagent.hub.store.contract import DatabaseOptions, Store
from fieldagent.store.group import StoreUnavailable


def is_postgres(database: str) -> bool:
    """Return whether the setting names a PostgreSQL; else it is the path of a file."""
    return database.startswith(("postgresql://", "postgres://"))


def open_store(database: str, options: DatabaseOptions = DatabaseOptions()) -> Store:  # noqa: B008
    """Open the database at `postgresql://…`, or the path of an SQLite file, which is made where
    there is none.

    Raises StoreUnavailable, or StoreFailed for a file, with what to do; OtherVersion is one."""
    if is_postgres(database):
        try:
            from fieldagent.hub.store.postgres import PostgresStore
        except ImportError as error:
            raise StoreUnavailable(
                f"PostgreSQL needs psycopg 3 ({error}): apt-get install"
                " python3-psycopg, or pip install fieldagent[postgres]"
            ) from error

        return PostgresStore(database, options)
    from fieldagent.hub.store.sqlite import SqliteStore

    return SqliteStore(database)
