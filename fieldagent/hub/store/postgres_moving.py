"""PostgreSQL as source or target of a move (`store.moving`)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager

import psycopg

from fieldagent.hub.store.contract import DatabaseOptions
from fieldagent.hub.store.moving import DatabaseSide, NotMoved, Row, Table, make_in_use_error
from fieldagent.hub.store.postgres import LIVING_WORKERS
from fieldagent.hub.store.postgres_connections import Connection, Connections

_RUNS = f"SELECT EXISTS ({LIVING_WORKERS})"
_HAD_LINKS_SQL = "SELECT EXISTS (SELECT 1 FROM process WHERE until > %s)"
"""Query that returns true if a hub has links, or had links within the last half minute. Behind a
pooler, this is the only sign of a running hub."""
_LOCK_TIMEOUT_SQL = "SET LOCAL lock_timeout = '5s'"
"""Statement that limits each wait for a lock to 5 s. This is long enough for PostgreSQL's own
vacuum, which releases its lock after a second."""


class _PostgresSide:
    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        self._connection = connection

    def read_rows(self, table: Table) -> Iterator[Row]:
        with self._connection.cursor(name="move") as cursor:
            cursor.itersize = 1_000
            cursor.execute(table.select.encode())
            yield from cursor

    def count(self, table: Table) -> int:
        sql = f"SELECT count(*) FROM {table.name}"
        ((number,),) = self._connection.execute(sql.encode()).fetchall()
        return int(number)

    def fill(self, table: Table, rows: Iterable[Row]) -> None:
        sql = f"COPY {table.name} ({', '.join(table.columns)}) FROM STDIN"
        with self._connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
            for row in rows:
                copy.write_row(row)

    def read_next_id(self, table: Table) -> int:
        sql = f"SELECT last_value + is_called::int FROM {self._find_sequence(table)}"
        ((number,),) = self._connection.execute(sql.encode()).fetchall()
        return int(number)

    def set_next_id(self, table: Table, number: int) -> None:
        self._connection.execute(
            "SELECT setval(%s, %s, false)", (self._find_sequence(table), number)
        )

    def _find_sequence(self, table: Table) -> str:
        sql = "SELECT pg_get_serial_sequence(%s, 'id')"
        ((name,),) = self._connection.execute(sql, (table.name,)).fetchall()
        return str(name)

    def commit(self) -> None:
        # Without statistics, PostgreSQL plans badly until its next automatic ANALYZE.
        self._connection.execute("ANALYZE")
        self._connection.execute("COMMIT")


@contextmanager
def open_postgres_side(
    database: str, options: DatabaseOptions, tables: Sequence[Table]
) -> Iterator[DatabaseSide]:
    """Open the database and lock its tables, so that no other program can write."""
    connections = Connections(database, options)
    try:
        with connections.convert_errors(), closing(connections.connect()) as connection:
            connection.execute("BEGIN")
            if _is_hub_running(connection, options):
                raise make_in_use_error(connections.name)
            connection.execute(_LOCK_TIMEOUT_SQL)
            names = ", ".join(table.name for table in tables)
            try:
                connection.execute(f"LOCK TABLE {names} IN EXCLUSIVE MODE".encode())
            except psycopg.errors.LockNotAvailable as error:
                raise make_in_use_error(connections.name) from error
            yield _PostgresSide(connections.name, connection)
    except psycopg.Error as error:
        text = " ".join(str(error).split())
        raise NotMoved(f"{connections.name} refused the copy: {text}") from error


def _is_hub_running(connection: Connection, options: DatabaseOptions) -> bool:
    if options.pooled and options.direct is None:
        ((runs,),) = connection.execute(_HAD_LINKS_SQL, (time.time(),)).fetchall()
    else:
        ((runs,),) = connection.execute(_RUNS).fetchall()
    return bool(runs)
