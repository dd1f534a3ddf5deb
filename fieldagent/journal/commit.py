"""Opens the journal's file, and lets everyone who writes at one moment share one sync.

SQLite in WAL mode with `synchronous=FULL`: what `commit` has returned from survives a power cut. A
commit that failed is never tried again and believed: the journal says so to everyone, once and for
all, and its owner stops.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import trio

from fieldagent.journal.schema import STEPS, TABLES, VERSION

log = logging.getLogger(__name__)

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], T]

GATHER = 0.002
"""Seconds that a commit waits for those who took part in the one before."""


class JournalFull(Exception):
    """The disk is full. Nothing was stored; what was stored before is unharmed."""


class JournalFailed(Exception):
    """The disk refused a commit. Nothing more is accepted until the program starts again."""


@dataclass(slots=True, eq=False)
class _Order:
    operation: Operation[Any]
    caller: trio.lowlevel.Task
    result: Any = None
    error: BaseException | None = None


class Journal:
    """`run` must be running for `commit` to return. `read` sees what has been committed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.commits = 0
        self._writer = _open(path)
        self._reader = sqlite3.connect(
            f"file:{_quoted(path)}?mode=ro", uri=True, check_same_thread=False
        )
        self._orders: list[_Order] = []
        self._enough = 1
        self._came = trio.Event()
        self._ended = False
        self.failed: JournalFailed | None = None
        """Set once and for all when the disk refused a commit."""

    def read(self, sql: str, *parameters: Any) -> list[Any]:
        return self._reader.execute(sql, parameters).fetchall()

    async def commit(self, operation: Operation[T]) -> T:
        """Run `operation` in a transaction and return once it is on disk.

        Raises JournalFull, JournalFailed, or what `operation` raises; then nothing was stored.
        """
        if self.failed is not None:
            raise self.failed
        if self._ended:
            # Of two that are cancelled together, the journal may be the first to go.
            await trio.lowlevel.checkpoint_if_cancelled()
            raise JournalFailed("the journal has been closed, as the agent stops")
        order = _Order(operation, trio.lowlevel.current_task())
        self._orders.append(order)
        if len(self._orders) == 1 or len(self._orders) >= self._enough:
            self._came.set()
        await trio.lowlevel.wait_task_rescheduled(_stay)
        if order.error is not None:
            raise order.error
        result: T = order.result
        return result

    async def run(self) -> None:
        """Carry out what is ordered until cancelled; what is ordered by then is carried out still.

        Returns when the journal has failed, after everyone who waits has been told.
        """
        try:
            while self.failed is None:
                await self._gather()
                with trio.CancelScope(shield=True):
                    await self._commit_all()
        finally:
            with trio.CancelScope(shield=True):
                while self._orders:
                    await self._commit_all()
                # Whoever orders from here on would wait for nobody.
                self._ended = True

    async def _gather(self) -> None:
        if not self._orders:
            self._came = trio.Event()
            await self._came.wait()
        if 1 <= len(self._orders) < self._enough:
            self._came = trio.Event()
            with trio.move_on_after(GATHER):
                await self._came.wait()

    async def _commit_all(self) -> None:
        orders, self._orders = self._orders, []
        self._enough = len(orders)
        await trio.to_thread.run_sync(self._carry_out, orders)
        for order in orders:
            if isinstance(order.error, JournalFailed):
                self.failed = order.error
            trio.lowlevel.reschedule(order.caller)

    def _carry_out(self, orders: list[_Order]) -> None:
        """In a thread: all in one transaction, or one by one if one of them raises."""
        try:
            self._transact(orders)
        except Exception as error:
            if len(orders) == 1:
                orders[0].error = _translated(error)
                return
            for order in orders:
                self._carry_out([order])

    def _transact(self, orders: list[_Order]) -> None:
        if self.failed is not None:
            raise self.failed
        writer = self._writer
        writer.execute("BEGIN IMMEDIATE")
        try:
            for order in orders:
                order.result = order.operation(writer)
            writer.execute("COMMIT")
            self.commits += 1
        except BaseException as error:
            self.failed = failed = _fatal(error)
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            if failed is not None:
                raise failed from error
            raise

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


def _stay(_: object) -> trio.lowlevel.Abort:
    """An order once given is carried out: whoever gave it must learn how it ended."""
    return trio.lowlevel.Abort.FAILED


def _fatal(error: BaseException) -> JournalFailed | None:
    """Errors of the disk itself, after which SQLite's own view of the file is not to be trusted."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return JournalFailed(f"the journal cannot be written: {error}")
    return None


def _translated(error: Exception) -> Exception:
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
        return JournalFull("the disk is full")
    return error


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return _connect(path)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError) and _fatal(error) is None:
            raise
        _set_aside(path, str(error))
        return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0.5)
    try:
        connection.execute("PRAGMA locking_mode=NORMAL")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA cache_size=-512")
        damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise sqlite3.DatabaseError(damage)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            connection.executescript(f"BEGIN;{TABLES};PRAGMA user_version={VERSION};COMMIT")
        elif version < VERSION:
            steps = "".join(STEPS[number] for number in range(version, VERSION))
            connection.executescript(f"BEGIN;{steps};PRAGMA user_version={VERSION};COMMIT")
        elif version > VERSION:
            raise sqlite3.DatabaseError(f"it has version {version}, this program knows {VERSION}")
    except BaseException:
        connection.close()
        raise
    return connection


def _set_aside(path: Path, why: str) -> None:
    number = 1
    while (bad := path.with_name(f"{path.name}.{number}.bad")).exists():
        number += 1
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(bad.with_name(bad.name + suffix))
    log.error(
        "the journal %s is damaged (%s): it was set aside as %s and a new one begun; Packages that"
        " waited in it are not sent unless they are posted again",
        path,
        why,
        bad.name,
    )


def _quoted(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
