"""Copies the database of a stopped hub to the other engine, SQLite or PostgreSQL.

The target gets everything in one transaction, so the target stays empty if the move is interrupted.
Before the commit, the rows are read from the target and compared with the source.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from fieldagent.hub.store.contract import make_marks, replace_nul
from fieldagent.hub.store.schema import make_hub_schema
from fieldagent.hub.store.sqlite import TYPES
from fieldagent.store.group import StoreFailed
from fieldagent.store.trouble import make_unusable
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

PROCESS_TABLES = frozenset({"process", "lease", "worker", "console_stream"})
"""Tables about running hub processes and their links, which are not copied."""
REPORT_ROWS = 1_000
"""Number of rows between two reports of progress."""
_BUSY_S = 1.0
"""Seconds to wait for another command that has the SQLite file open."""

Row = tuple[Any, ...]


class NotMoved(Exception):
    """Error: the database was not moved. The text is for people and contains the fix."""


class Table(NamedTuple):
    name: str
    columns: tuple[str, ...]
    counts: bool
    """True if the database generates the ids of the rows."""

    @property
    def select(self) -> str:
        """Return the SELECT statement for all rows."""
        return f"SELECT {', '.join(self.columns)} FROM {self.name}"


class DatabaseSide(Protocol):
    """Source or target of a move: a transaction on a database that no other program uses."""

    name: str
    """Name of the database in messages for people."""

    def read_rows(self, table: Table) -> Iterator[Row]:
        """Return all rows of a table, in any order."""

    def count(self, table: Table) -> int:
        """Return the number of rows in a table."""

    def fill(self, table: Table, rows: Iterable[Row]) -> None:
        """Insert copied rows into the empty table `table`."""

    def read_next_id(self, table: Table) -> int:
        """Return the id that the next new row of a table gets."""

    def set_next_id(self, table: Table, number: int) -> None: ...

    def commit(self) -> None: ...


class _SqliteSide:
    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.name = str(path)
        self._connection = connection

    def read_rows(self, table: Table) -> Iterator[Row]:
        return self._connection.execute(table.select)

    def count(self, table: Table) -> int:
        ((number,),) = self._connection.execute(f"SELECT count(*) FROM {table.name}").fetchall()
        return int(number)

    def fill(self, table: Table, rows: Iterable[Row]) -> None:
        names = ", ".join(table.columns)
        sql = f"INSERT INTO {table.name} ({names}) VALUES ({make_marks(table.columns)})"
        self._connection.executemany(sql, rows)

    def read_next_id(self, table: Table) -> int:
        # The table contains the largest id that was ever used (https://sqlite.org/autoinc.html).
        sql = "SELECT seq FROM sqlite_sequence WHERE name = ?"
        rows = self._connection.execute(sql, (table.name,)).fetchall()
        return int(rows[0][0]) + 1 if rows else 1

    def set_next_id(self, table: Table, number: int) -> None:
        self._connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table.name,))
        if number > 1:
            sql = "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)"
            self._connection.execute(sql, (table.name, number - 1))

    def commit(self) -> None:
        self._connection.execute("COMMIT")


@contextmanager
def open_sqlite_side(path: Path) -> Iterator[DatabaseSide]:
    """Open the file for exclusive use. SQLite refuses the lock if a hub or another command has the
    file open. While this program has the file open, SQLite refuses other programs
    (https://sqlite.org/pragma.html#pragma_locking_mode).
    """
    try:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=_BUSY_S)) as connection:
            connection.text_factory = lambda text: text.decode(errors="replace")
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute("BEGIN IMMEDIATE")
            yield _SqliteSide(path, connection)
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            raise make_in_use_error(str(path)) from error
        raise StoreFailed(str(make_unusable(path, error))) from error


def make_in_use_error(name: str) -> NotMoved:
    """Return the error for a database that a hub is using."""
    return NotMoved(f"a hub or another command uses {name}: stop it, and repeat the move")


def list_hub_tables() -> list[Table]:
    """Return all tables in an order in which each table refers only to earlier tables."""
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(make_hub_schema(TYPES).tables)
        tables = empty.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'table'"
            " AND name NOT LIKE 'sqlite%' ORDER BY rowid"
        ).fetchall()
        return [
            Table(
                name,
                tuple(row[1] for row in empty.execute(f"PRAGMA table_info({name})")),
                "AUTOINCREMENT" in sql,
            )
            for name, sql in tables
        ]


@dataclass(slots=True)
class _Tally:
    """Count and digest of rows, which do not depend on the order of the rows."""

    rows: int = 0
    digest: int = 0

    def count_rows(self, rows: Iterable[Row], report: Callable[[int], None]) -> Iterator[Row]:
        """Yield the rows, and add each row to the count and the digest. `report` is called from
        time to time with the count so far.
        """
        for row in rows:
            self.rows += 1
            row_text = repr([_normalise(value) for value in row]).encode()
            self.digest += int.from_bytes(blake2b(row_text, digest_size=16).digest())
            if self.rows % REPORT_ROWS == 0:
                report(self.rows)
            yield row


def _normalise(value: Any) -> Any:
    """Return the value in the form in which both engines store it. SQLite has no negative zero, and
    PostgreSQL has no NUL character.
    """
    if isinstance(value, str):
        return replace_nul(value)
    return value + 0.0 if isinstance(value, float) else value


class MoveResult(NamedTuple):
    tables: int
    """Number of tables that contain rows."""
    rows: int


def move(
    source: DatabaseSide, target: DatabaseSide, report: Callable[[int, int], None]
) -> MoveResult:
    """Copy all rows and commit the copy. `report` is called with the number of rows that have been
    copied or compared, and with the total of this number. Raises NotMoved.
    """
    tables = [each for each in list_hub_tables() if each.name not in PROCESS_TABLES]
    for table in tables:
        if next(target.read_rows(table), None) is not None:
            raise NotMoved(
                f"{target.name} already has data in its table {table.name}: nothing was copied;"
                " name an empty database"
            )
    rows = sum(map(source.count, tables))
    moved_count = 0

    def count(more: int) -> None:
        report(moved_count + more, 2 * rows)

    copied = {}
    for table in tables:
        tally = copied[table.name] = _Tally()
        target.fill(table, tally.count_rows(source.read_rows(table), count))
        if table.counts:
            target.set_next_id(table, source.read_next_id(table))
        moved_count += tally.rows
        report(moved_count, 2 * rows)
    for table in tables:
        target_tally = _Tally()
        for _ in target_tally.count_rows(target.read_rows(table), count):
            pass
        if target_tally != (tally := copied[table.name]):
            raise NotMoved(
                f"the copy of the table {table.name} differs ({target_tally.rows} rows of"
                f" {tally.rows}): {target.name} was left as it was"
            )
        moved_count += target_tally.rows
    target.commit()
    return MoveResult(sum(each.rows > 0 for each in copied.values()), rows)
