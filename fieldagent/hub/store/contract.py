"""Interface of the hub's store, and of the transactions (`Db`) that operations use. An operation
uses the same SQL for SQLite and PostgreSQL.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

import trio

from fieldagent.store.group import StoreFailed, StoreUnavailable
from fieldagent.system.lazy_dataclass import dataclass

T = TypeVar("T")
A = TypeVar("A")


class WrongTableVersion(StoreUnavailable):
    """Error: the tables have another version than this program requires. The text contains the
    fix.
    """


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """Options for PostgreSQL. SQLite needs no options, because each program that opens the file
    upgrades it.
    """

    upgrade: bool = True
    """If True, create the tables or upgrade them to this version."""
    password_file: Path | None = None
    pooled: bool = False
    """True if the database address is that of a pooler, which shares connections between
    transactions."""
    direct: str | None = None
    """Database address that bypasses the pooler, for the connection that listens. None if there is
    no such address."""


class Db(Protocol):
    """Database connection within one transaction."""

    takes_lists: bool
    """True if a single parameter can be a list of values, or the JSON of many rows."""

    worker: int
    """Number of this process, which each claim contains (`records.claims`). 0 if other processes
    cannot detect that this process has died."""

    @property
    def living_workers(self) -> str:
        """Return a SELECT statement for the numbers of the living processes."""

    def for_update(self, of: str = "") -> str:
        """Return the end of a SELECT statement that locks the selected rows until the end of the
        transaction. In a join, `of` is the only table whose rows are locked.
        """

    def skip_locked(self, of: str = "") -> str:
        """Return the end of a SELECT statement that claims rows. The statement locks the rows, and
        skips rows that other transactions have locked.
        """

    def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run one statement. Return the rows of its query or of its RETURNING clause. Each `?` is a
        parameter.
        """

    def write(self, sql: str, *parameters: Any) -> None:
        """Run one statement that returns no rows.

        On PostgreSQL, consecutive writes and the announcements at the end of a transaction become
        one statement. So a write must not depend on an earlier write in the same sequence. A later
        `execute` sees all writes.
        """

    def announce(self, topic: str) -> None:
        """After the commit, set the events of `topic` (`Store.get_event`) in each process of the
        hub.
        """


def select(db: Db, columns: Mapping[str, str], rest: str, *parameters: Any) -> list[dict[str, Any]]:
    """Return the rows of a query as dictionaries.

    `columns` maps each key of a dictionary to its SQL expression. `rest` begins with FROM.
    """
    rows = db.execute(f"SELECT {', '.join(columns.values())} {rest}", *parameters)
    return [dict(zip(columns, row, strict=True)) for row in rows]


ANY_WRITE_TOPIC = "anything"
"""Topic that is announced after every write, even if the write announces no topic. If another
process made such a write, the announcement comes some seconds later."""


ROWS_MAX = 1_000
"""Largest number of rows per INSERT statement on SQLite, which allows 32 766 parameters."""


def insert(
    db: Db,
    table: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    returning: str = "",
    *,
    conflict: str = "",
) -> list[tuple[Any, ...]]:
    """Insert many rows with few statements. Return the columns `returning` of the inserted rows, or
    an empty list if `returning` is empty. `conflict` is the SQL text after ON CONFLICT.
    """
    if not rows:
        return []
    names = ", ".join(columns)
    ending = f" ON CONFLICT {conflict}" if conflict else ""
    ending += f" RETURNING {returning}" if returning else ""
    if db.takes_lists:
        # Use the same SQL text for any number of rows, so that psycopg parses it once and
        # PostgreSQL plans it once.
        sql = (
            f"INSERT INTO {table} ({names}) SELECT {names}"
            f" FROM json_populate_recordset(NULL::{table}, ?::json){ending}"
        )
        text = _encode_json(columns, rows)
        if _NUL in text:
            text = _encode_json(columns, [[_replace_nul(value) for value in row] for row in rows])
        if returning:
            return db.execute(sql, text)
        db.write(sql, text)
        return []
    mark, returned = f"({make_marks(columns)})", []
    for first in range(0, len(rows), ROWS_MAX):
        row_slice = rows[first : first + ROWS_MAX]
        into = f"INSERT INTO {table} ({names}) VALUES {', '.join([mark] * len(row_slice))}{ending}"
        returned += db.execute(into, *(value for row in row_slice for value in row))
    return returned


_NUL = r"\u0000"
"""JSON escape of a NUL character. After an escaped backslash, the same characters have another
meaning."""


def _encode_json(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    records = [dict(zip(columns, row, strict=True)) for row in rows]
    return json.dumps(records, default=_encode_bytea)


def _replace_nul(value: Any) -> Any:
    return replace_nul(value) if isinstance(value, str) else value


def replace_nul(text: str) -> str:
    """Replace NUL characters in the text, because PostgreSQL does not accept them."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text


def _encode_bytea(value: bytes) -> str:
    """Return bytes in PostgreSQL's hex format for bytea (PostgreSQL manual, section 8.4.1)."""
    return f"\\x{value.hex()}"


def make_membership(db: Db, values: Collection[Any], *, few: int = 1) -> tuple[str, Sequence[Any]]:
    """Return the SQL condition for "is one of these values", which follows a column's name. Also
    return its parameters.

    If there are at most `few` values, each is a single parameter, and PostgreSQL keeps the plan of
    such a statement. If the parameter is a list, PostgreSQL makes a new plan each time, because the
    best plan depends on the length of the list. A plan that is kept must still be good when the
    table has grown. So use `few` above 1 only for tables that do not grow with the items.
    """
    if db.takes_lists and not 1 <= len(values) <= few:
        return "= ANY (?)", [[*values]]
    return f"IN ({make_marks(values)})", [*values]


def make_small_table(
    db: Db, name: str, columns: Sequence[str], rows: Sequence[Sequence[int | str]]
) -> tuple[str, Sequence[Any]]:
    """Return the WITH clause for a table of integers and texts, and its parameters.

    All values in a column have the same type. `rows` must contain at least one row.
    """
    head = f"WITH {name} ({', '.join(columns)}) AS "
    if db.takes_lists and len(rows) > 1:
        lists = ", ".join(f"{mark}[]" for mark in _make_typed_marks(rows[0]))
        whole = [list(each) for each in zip(*rows, strict=True)]
        return f"{head}(SELECT * FROM unnest({lists}))", whole
    row = ", ".join(_make_typed_marks(rows[0]) if db.takes_lists else "?" * len(columns))
    values = ", ".join([f"({row})"] * len(rows))
    return f"{head}(VALUES {values})", [value for row in rows for value in row]


def _make_typed_marks(row: Sequence[int | str]) -> list[str]:
    """Return one typed parameter mark per value, for PostgreSQL."""
    return ["?::text" if isinstance(value, str) else "?::bigint" for value in row]


def find_earliest(db: Db, sql: str, *parameters: Any) -> float:
    """Return the result of a SELECT for one minimum, or infinity if the result is NULL."""
    ((earliest,),) = db.execute(sql, *parameters)
    return inf if earliest is None else float(earliest)


def make_marks(values: Collection[Any]) -> str:
    """Return one question mark per value, separated by commas."""
    return ", ".join("?" * len(values))


class Store(Protocol):
    shared: bool
    """True if several processes of the hub can use the store at the same time."""

    async def commit(self, operation: Callable[[Db], T]) -> T:
        """Run `operation` in a transaction. Return its result after the transaction is on disk.

        Several operations can share the transaction, and it can run again if it fails. So
        `operation` must change nothing but the store. Raises StoreUnavailable, StoreFailed,
        StoreFull, and every exception of `operation`.
        """

    async def commit_together(
        self, operation: Callable[[Db, Sequence[A]], Sequence[T]], argument: A
    ) -> T:
        """Commit `operation` once for all concurrent callers, with the arguments of all of them.
        Each caller gets its own result. In all other respects, this method is like `commit`.
        """

    async def read_together(
        self, operation: Callable[[Db, Sequence[A]], Sequence[T]], argument: A
    ) -> T:
        """Run the read-only `operation` once for all concurrent callers, with the arguments of all
        of them. Each caller gets its own result.
        """

    async def read(self, operation: Callable[[Db], T]) -> T:
        """Run the read-only `operation` and return its result."""

    async def prove(self) -> None:
        """Check that the database accepts writes. A commit within the last `FRESH_S` seconds is
        sufficient. If there was none, write a row of this process. Raises StoreUnavailable,
        StoreFull, StoreFailed.
        """

    def get_event(self, topic: str) -> trio.Event:
        """Return an event that is set at the next announcement of `topic`. Get the event before you
        read the data, so that no change is missed.
        """

    def wake(self, event: trio.Event, topics: Collection[str]) -> None:
        """Set an event at the next announcement of any of the topics. The store does not keep the
        event alive. With this method, a task can wait for many topics with one event.
        """

    async def run(self) -> StoreFailed | None:
        """Run the store, a task of the hub that makes all commits. Return the failure if the disk
        has failed.
        """

    def run_once(self, operation: Callable[[Db], T]) -> T:
        """Run `operation` in a separate transaction, without trio. The hub may be running at the
        same time.
        """

    def close(self) -> None: ...


FRESH_S = 10.0
"""Seconds after a commit during which the database is considered writable."""
FILLER_BYTES = 65_536
"""Size in bytes of the row that a test write inserts after the disk was full."""


def write_proof(db: Db, now: float, *, needs_room: bool) -> None:
    """Write this process's row in `worker` as a test. After the disk was full, `needs_room` must be
    True: the write then needs new pages, because a write into an existing page would prove nothing.
    """
    db.execute(
        "INSERT INTO worker (number, proved, filler) VALUES (?, ?, ?) ON CONFLICT (number)"
        " DO UPDATE SET proved = excluded.proved, filler = excluded.filler",
        *(db.worker, now, os.urandom(FILLER_BYTES) if needs_room else b""),
    )


class Topics:
    """Events of this process by topic. An announcement of a topic sets its events."""

    def __init__(self) -> None:
        self._events: dict[str, trio.Event] = {}
        self._waiting: dict[str, WeakSet[trio.Event]] = {}
        """Events that were passed to `wake`, by each of their topics."""

    def get_event(self, topic: str) -> trio.Event:
        return self._events.setdefault(topic, trio.Event())

    def wake(self, event: trio.Event, topics: Collection[str]) -> None:
        for topic in topics:
            if topic not in self._waiting:
                self._waiting[topic] = WeakSet()
            self._waiting[topic].add(event)

    def announce(self, topics: set[str]) -> None:
        for topic in (*topics, ANY_WRITE_TOPIC):
            if (event := self._events.pop(topic, None)) is not None:
                event.set()
            for event in self._waiting.pop(topic, ()):
                event.set()

    def announce_all(self) -> None:
        """Wake all waiting tasks, because announcements may have been missed."""
        self.announce({*self._events, *self._waiting})
