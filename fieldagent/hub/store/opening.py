"""Opens the store that the settings name."""

from __future__ import annotations

from fieldagent.hub.store.contract import Store
from fieldagent.store.group import StoreUnavailable


def open_store(database: str) -> Store:
    """`postgresql://…`, or the path of an SQLite file, which is made where there is none.

    Raises StoreUnavailable with what to do.
    """
    if database.startswith(("postgresql://", "postgres://")):
        try:
            from fieldagent.hub.store.postgres import PostgresStore
        except ImportError as error:
            raise StoreUnavailable(
                f"PostgreSQL needs psycopg 3 ({error}): apt-get install"
                " python3-psycopg, or pip install fieldagent[postgres]"
            ) from error

        return PostgresStore(database)
    from fieldagent.hub.store.sqlite import SqliteStore

    return SqliteStore(database)
