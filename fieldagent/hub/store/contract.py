"""The hub's store, and what an operation on it gets: the same SQL on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Protocol, TypeVar

import trio

from fieldagent.store.group import StoreFailed, StoreUnavailable
from fieldagent.system.lazy_dataclass import dataclass

T = TypeVar("T")
A = TypeVar("A")


class OtherVersion(StoreUnavailable):
    """The tables are of another version than this program's; the text says what to do."""


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """How to use PostgreSQL. SQLite needs none: its file is upgraded by whoever opens it."""

    upgrade: bool = True
    """Make the tables, or bring them to this version."""
    password_file: Path | None = None
    pooled: bool = False
    """The address leads to a pooler that shares connections between transactions."""
    direct: str | None = None
    """Around the pooler, for the one connection that listens."""


class Db(Protocol):
    """A connection within one transaction."""

    takes_lists: bool
    """Whether one parameter may be a list of values, and one the JSON of many rows."""

    worker: int
    """The number of this process in what it claims (`records.claims`); 0 where nobody could know
    that it has died."""

    @property
    def living_workers(self) -> str:
        """Return a SELECT of the numbers of those that live."""

    def for_update(self, of: str = "") -> str:
        """Return the end of a SELECT of rows that are then changed: nobody else may change them
        meanwhile. Of a join only those of the table that is named."""

    def skip_locked(self, of: str = "") -> str:
        """Return the end of a SELECT that claims rows: it locks them, and leaves out what others
        have locked."""

    def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run one statement, whose parameters are marked by `?`; the rows of a query or of
        RETURNING come back."""

    def write(self, sql: str, *parameters: Any) -> None:
        """Do as `execute` does, where no rows are asked for. On PostgreSQL those that follow each
        other are one statement, with the announcements at the end of a transaction: none may need
        what another of them writes. Whatever is executed after them sees it all."""

    def announce(self, topic: str) -> None:
        """Set `heard(topic)` after the commit in every process of the hub."""


def select(db: Db, columns: Mapping[str, str], rest: str, *parameters: Any) -> list[dict[str, Any]]:
    """Return the rows of a query, each value by its name here. `columns` has the SQL of each;
    `rest` begins with FROM."""
    rows = db.execute(f"SELECT {', '.join(columns.values())} {rest}", *parameters)
    return [dict(zip(columns, row, strict=True)) for row in rows]


ANYTHING = "anything"
"""The topic of all that is written, also of what nobody announces; of that, by another process,
some seconds later."""


ROWS = 1_000
"""In one statement of SQLite, which takes 32 766 parameters."""


def insert(
    db: Db,
    table: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    returning: str = "",
    *,
    conflict: str = "",
) -> list[tuple[Any, ...]]:
    """Insert many rows by few statements. `conflict` is what stands behind ON CONFLICT."""
    if not rows:
        return []
    names = ", ".join(columns)
    ending = f" ON CONFLICT {conflict}" if conflict else ""
    ending += f" RETURNING {returning}" if returning else ""
    if db.takes_lists:
        # The same text for any number of rows: psycopg reads it once, PostgreSQL plans it once.
        sql = (
            f"INSERT INTO {table} ({names}) SELECT {names}"
            f" FROM json_populate_recordset(NULL::{table}, ?::json){ending}"
        )
        text = _as_json(columns, rows)
        if _NUL in text:
            text = _as_json(columns, [[_without_nul(value) for value in row] for row in rows])
        if returning or conflict:
            return db.execute(sql, text)
        db.write(sql, text)
        return []
    mark, returned = f"({marks(columns)})", []
    for first in range(0, len(rows), ROWS):
        some = rows[first : first + ROWS]
        into = f"INSERT INTO {table} ({names}) VALUES {', '.join([mark] * len(some))}{ending}"
        returned += db.execute(into, *(value for row in some for value in row))
    return returned


_NUL = r"\u0000"
"""In JSON; perhaps of a backslash that stands before other characters."""


def _as_json(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    records = [dict(zip(columns, row, strict=True)) for row in rows]
    return json.dumps(records, default=_bytea)


def _without_nul(value: Any) -> Any:
    return without_nul(value) if isinstance(value, str) else value


def without_nul(text: str) -> str:
    """Return a text as PostgreSQL takes it."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text


def _bytea(value: bytes) -> str:
    """As PostgreSQL reads it (its manual, 8.4.1)."""
    return f"\\x{value.hex()}"


def one_of(db: Db, values: Collection[Any], *, few: int = 1) -> tuple[str, Sequence[Any]]:
    """Return what stands behind a column that is to be one of these, and its parameters.

    Up to `few` are named one by one. PostgreSQL keeps the plan of such a statement, and plans one
    with a list anew each time, to know how many there are. A plan that is kept must be good when
    the table has grown: more than one are for tables that do not grow as items come.
    """
    if db.takes_lists and not 1 <= len(values) <= few:
        return "= ANY (?)", [[*values]]
    return f"IN ({marks(values)})", [*values]


def few_rows(
    db: Db, name: str, columns: Sequence[str], rows: Sequence[Sequence[int | str]]
) -> tuple[str, Sequence[Any]]:
    """Return the WITH of a table of these whole numbers and texts, a kind in each column, and its
    parameters. There is one row at least."""
    head = f"WITH {name} ({', '.join(columns)}) AS "
    if db.takes_lists and len(rows) > 1:
        lists = ", ".join(f"{mark}[]" for mark in _typed(rows[0]))
        whole = [list(each) for each in zip(*rows, strict=True)]
        return f"{head}(SELECT * FROM unnest({lists}))", whole
    row = ", ".join(_typed(rows[0]) if db.takes_lists else "?" * len(columns))
    values = ", ".join([f"({row})"] * len(rows))
    return f"{head}(VALUES {values})", [value for row in rows for value in row]


def _typed(row: Sequence[int | str]) -> list[str]:
    """Return a mark for each value, of the kind that it is to PostgreSQL."""
    return ["?::text" if isinstance(value, str) else "?::bigint" for value in row]


def earliest(db: Db, sql: str, *parameters: Any) -> float:
    """Return the moment that this SELECT of one minimum finds; infinity where there is none."""
    ((soonest,),) = db.execute(sql, *parameters)
    return inf if soonest is None else float(soonest)


def marks(values: Collection[Any]) -> str:
    """Return question marks for a list in SQL, one for each."""
    return ", ".join("?" * len(values))


class Store(Protocol):
    shared: bool
    """Whether several processes of the hub use it at one time."""

    async def commit(self, operation: Callable[[Db], T]) -> T:
        """Run `operation` in a transaction, and return once it is on disk.

        It may share the transaction with others, and may be run again when that fails: it must
        change nothing but the store. Raises StoreUnavailable, StoreFailed, StoreFull, or what
        `operation` raises.
        """

    async def commit_together(
        self, operation: Callable[[Db, Sequence[A]], Sequence[T]], argument: A
    ) -> T:
        """Do as `commit` does, where `operation` gets what all pass that commit it at one moment;
        each has its own of the results."""

    async def read_together(
        self, operation: Callable[[Db, Sequence[A]], Sequence[T]], argument: A
    ) -> T:
        """Do as `read` does, in the same way."""

    async def read(self, operation: Callable[[Db], T]) -> T:
        """Run `operation`, which only looks."""

    async def prove(self) -> None:
        """Return once it is known that something was committed within the last `FRESH` seconds:
        by a write of its own where nobody wrote. Raises StoreUnavailable, StoreFull, StoreFailed.
        """

    def heard(self, topic: str) -> trio.Event:
        """Set at the next announcement of `topic`: ask for it before reading what may change."""

    async def run(self) -> StoreFailed | None:
        """Run the store: a task of the hub's, without which nothing is committed; returns when the
        disk failed, and how."""

    def once(self, operation: Callable[[Db], T]) -> T:
        """Run `operation` in a transaction of its own, without trio and beside a running hub."""

    def close(self) -> None: ...


FRESH = 10.0
"""Seconds for which a commit proves that the database takes what is written."""
FILLER = 65_536
"""Bytes that a proof needs room for where the disk was full."""


def write_proof(db: Db, now: float, *, needs_room: bool) -> None:
    """Write the row of this process. Where the disk was full it needs new pages: what fits into
    an old one proves nothing."""
    db.execute(
        "INSERT INTO worker (number, proved, filler) VALUES (?, ?, ?) ON CONFLICT (number)"
        " DO UPDATE SET proved = excluded.proved, filler = excluded.filler",
        *(db.worker, now, os.urandom(FILLER) if needs_room else b""),
    )


class Topics:
    """Who waits for which announcement in this process."""

    def __init__(self) -> None:
        self._events: dict[str, trio.Event] = {}

    def heard(self, topic: str) -> trio.Event:
        return self._events.setdefault(topic, trio.Event())

    def announce(self, topics: set[str]) -> None:
        for topic in (*topics, ANYTHING):
            if (event := self._events.pop(topic, None)) is not None:
                event.set()

    def announce_all(self) -> None:
        """Wake all who wait: what was announced may have been missed."""
        self.announce(set(self._events))
