"""Interface of the hub's store and of the transactions (`Db`) that its operations use. Operations
use the same SQL on SQLite and on PostgreSQL.
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


class OtherVersion(StoreUnavailable):
    """Error: the tables have another version than this program needs. The text contains the fix."""


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """Options for PostgreSQL. SQLite needs none: each program that opens the file upgrades it."""

    upgrade: bool = True
    """True: create the tables, or upgrade them to this version."""
    password_file: Path | None = None
    pooled: bool = False
    """True if the address leads to a pooler that shares connections between transactions."""
    direct: str | None = None
    """Address that bypasses the pooler, for the one connection that listens. None: no such address.
    """


class Db(Protocol):
    """Connection within one transaction."""

    takes_lists: bool
    """True if one parameter can be a list of values, or the JSON of many rows."""

    worker: int
    """Number of this process, stored with each claim (`records.claims`). 0 if other processes
    cannot detect the death of this process."""

    @property
    def living_workers(self) -> str:
        """Return a SELECT of the numbers of the processes that are alive."""

    def for_update(self, of: str = "") -> str:
        """Return the suffix of a SELECT that locks the selected rows until the end of the
        transaction. In a join, `of` names the only table whose rows are locked.
        """

    def skip_locked(self, of: str = "") -> str:
        """Return the suffix of a SELECT that claims rows. It locks the rows and skips rows that
        other transactions have locked.
        """

    def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run one statement and return the rows of the query or of RETURNING. `?` marks each
        parameter.
        """

    def write(self, sql: str, *parameters: Any) -> None:
        """Run one statement that returns no rows.

        On PostgreSQL, consecutive writes and the announcements at the end of a transaction become
        one statement. A write must not depend on another write of the same statement. A later
        `execute` sees all of them.
        """

    def announce(self, topic: str) -> None:
        """Set the events of `topic` (`Store.get_event`) in every process of the hub after the
        commit.
        """


def select(db: Db, columns: Mapping[str, str], rest: str, *parameters: Any) -> list[dict[str, Any]]:
    """Return the rows of a query as dictionaries.

    `columns` maps each key to its SQL expression. `rest` begins with FROM.
    """
    rows = db.execute(f"SELECT {', '.join(columns.values())} {rest}", *parameters)
    return [dict(zip(columns, row, strict=True)) for row in rows]


ANY_WRITE_TOPIC = "anything"
"""Topic that is announced for every write, even if the writer announces no topic. If another
process made such a write, the announcement comes some seconds later."""


ROWS_MAX = 1_000
"""Rows per INSERT statement on SQLite, which allows 32 766 parameters."""


def insert(
    db: Db,
    table: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    returning: str = "",
    *,
    conflict: str = "",
) -> list[tuple[Any, ...]]:
    """Insert many rows with few statements. `conflict` is the text after ON CONFLICT."""
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
        some = rows[first : first + ROWS_MAX]
        into = f"INSERT INTO {table} ({names}) VALUES {', '.join([mark] * len(some))}{ending}"
        returned += db.execute(into, *(value for row in some for value in row))
    return returned


_NUL = r"\u0000"
"""JSON escape of a NUL character. The same characters can also follow an escaped backslash and then
mean something else.
"""


def _encode_json(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    records = [dict(zip(columns, row, strict=True)) for row in rows]
    return json.dumps(records, default=_encode_bytea)


def _replace_nul(value: Any) -> Any:
    return replace_nul(value) if isinstance(value, str) else value


def replace_nul(text: str) -> str:
    """Return the text with NUL characters replaced, because PostgreSQL does not accept them."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text


def _encode_bytea(value: bytes) -> str:
    """Return bytes in PostgreSQL's hex format for bytea (PostgreSQL manual, 8.4.1)."""
    return f"\\x{value.hex()}"


def make_membership(db: Db, values: Collection[Any], *, few: int = 1) -> tuple[str, Sequence[Any]]:
    """Return the SQL condition after a column's name for "is one of these values", and its
    parameters.

    Up to `few` values become single parameters. PostgreSQL keeps the plan of such a statement. It
    plans a statement with a list again each time, because the length of the list counts. A kept
    plan must still be good when the table has grown. So use `few` above 1 only for tables that do
    not grow with the items.
    """
    if db.takes_lists and not 1 <= len(values) <= few:
        return "= ANY (?)", [[*values]]
    return f"IN ({make_marks(values)})", [*values]


def make_small_table(
    db: Db, name: str, columns: Sequence[str], rows: Sequence[Sequence[int | str]]
) -> tuple[str, Sequence[Any]]:
    """Return the WITH clause of a table of whole numbers and texts, and its parameters.

    Each column has one type. `rows` must contain at least one row.
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
    """Return the result of a SELECT of one minimum, or infinity if the minimum is NULL."""
    ((soonest,),) = db.execute(sql, *parameters)
    return inf if soonest is None else float(soonest)


def make_marks(values: Collection[Any]) -> str:
    """Return one question mark per value, separated by commas."""
    return ", ".join("?" * len(values))


class Store(Protocol):
    shared: bool
    """True if several processes of the hub can use the store at the same time."""

    async def commit(self, operation: Callable[[Db], T]) -> T:
        """Run `operation` in a transaction and return its result once it is on disk.

        The transaction can be shared with other operations and can be run again if it fails. So
        `operation` must change only the store. Raises StoreUnavailable, StoreFailed, StoreFull, and
        every exception of `operation`.
        """

    async def commit_together(
        self, operation: Callable[[Db, Sequence[A]], Sequence[T]], argument: A
    ) -> T:
        """Run `operation` once with the arguments of all callers that commit it at the same moment.
        Each caller gets its own result. Otherwise like `commit`.
        """

    async def read_together(
        self, operation: Callable[[Db, Sequence[A]], Sequence[T]], argument: A
    ) -> T:
        """Run `operation`, which must only read, once with the arguments of all callers of the same
        moment. Each caller gets its own result.
        """

    async def read(self, operation: Callable[[Db], T]) -> T:
        """Run `operation`, which must only read."""

    async def prove(self) -> None:
        """Prove that the database accepts writes. A commit within the last `FRESH_S` seconds is
        enough. Otherwise commit a row of this process. Raises StoreUnavailable, StoreFull,
        StoreFailed.
        """

    def get_event(self, topic: str) -> trio.Event:
        """Return an event that is set at the next announcement of `topic`. Get the event before you
        read the data that can change.
        """

    def wake(self, event: trio.Event, topics: Collection[str]) -> None:
        """Set an event at the next announcement of one of the topics, if the event still exists
        then. So one event serves a task that waits for many topics.
        """

    async def run(self) -> StoreFailed | None:
        """Run the store, a task of the hub that commits everything. Return the failure if the disk
        failed.
        """

    def run_once(self, operation: Callable[[Db], T]) -> T:
        """Run `operation` in a transaction of its own, without trio. This call works beside a
        running hub.
        """

    def close(self) -> None: ...


FRESH_S = 10.0
"""Seconds after a commit during which the database counts as writable."""
FILLER_BYTES = 65_536
"""Bytes that a proof write needs after the disk was full."""


def write_proof(db: Db, now: float, *, needs_room: bool) -> None:
    """Write this process's row in `worker`. After a full disk the write must need new pages,
    because a write that fits into an old page proves nothing.
    """
    db.execute(
        "INSERT INTO worker (number, proved, filler) VALUES (?, ?, ?) ON CONFLICT (number)"
        " DO UPDATE SET proved = excluded.proved, filler = excluded.filler",
        *(db.worker, now, os.urandom(FILLER_BYTES) if needs_room else b""),
    )


class Topics:
    """Events of this process, by the topic that sets them."""

    def __init__(self) -> None:
        self._events: dict[str, trio.Event] = {}
        self._waiting: dict[str, WeakSet[trio.Event]] = {}
        """Events of `wake`, by each of their topics."""

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
