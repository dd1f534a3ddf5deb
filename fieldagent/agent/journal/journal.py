"""Opens the journal's file, and lets everyone who writes at one moment share one sync.

SQLite in WAL mode with `synchronous=FULL`: what `commit` has returned from survives a power cut. A
commit that failed is never tried again and believed: the journal says so to everyone, once and for
all, and its owner stops.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import trio

from fieldagent.agent.journal.schema import JOURNAL, Schema
from fieldagent.store.group import GroupCommit, Order, StoreFailed, StoreFull

log = logging.getLogger(__name__)

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], T]


ROOM_BYTES = 2 << 20
"""What must be free on the disk, or nothing but an SOS is accepted: what is under way needs it."""
RESERVE_PAGES = 1040
"""Pages that the journal's file has free for when nobody gets room on the disk any more. Taking
them makes the log longer than the 1 000 pages at which SQLite begins it anew: neither has to grow
then."""
RESERVE_FROM = 32 << 20
"""What must be free for the reserve to be taken."""
FULL_PAUSE = 10.0
"""Seconds until a full disk is tried again."""
LOCKED = 5.0
"""Seconds that a writer waits for another program's: each takes milliseconds."""


class Journal(GroupCommit[sqlite3.Connection]):
    """`run` must be running for `commit` to return. `read` sees what has been committed."""

    def __init__(self, path: Path) -> None:
        super().__init__(self._transact)
        self.path = path
        self.commits = 0
        self.full = False
        """Somebody waits in `persist` for room on the disk."""
        self._leaving = trio.Event()
        self._reserve_taken = False
        """In the transaction under way."""
        self._writer = _open(path)
        self._reader = reader(path)

    def read(self, sql: str, *parameters: Any) -> list[Any]:
        return self._reader.execute(sql, parameters).fetchall()

    def require_room(self) -> None:
        """Raises StoreFull where nothing should be begun."""
        if self._room() < ROOM_BYTES:
            left = f"less than {ROOM_BYTES >> 20} MiB"
            raise StoreFull(f"the disk has {left} left, which are kept for an SOS")

    def _room(self) -> int:
        disk = os.statvfs(self.path.parent)
        return disk.f_bavail * disk.f_frsize

    async def keep_reserve(self) -> None:
        """Where there is plenty of room, see that the file holds enough that is free in itself,
        and that the log, which is a new one at each start, is as long as it will ever be."""
        ((free,),) = self.read("PRAGMA freelist_count")
        log_size = self.path.with_name(self.path.name + "-wal").stat().st_size
        enough = free >= RESERVE_PAGES // 2 and log_size >= RESERVE_PAGES * 4096
        if not enough and self._room() >= RESERVE_FROM:
            # In two: what is freed in the transaction that takes it never reaches the disk.
            await self.commit(self._take_reserve)
            await self.commit(lambda db: db.execute("DELETE FROM reserve"))

    def _take_reserve(self, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO reserve VALUES (zeroblob(?))", (RESERVE_PAGES * 4096,))
        self._reserve_taken = True

    async def persist(self, operation: Operation[T]) -> T:
        """Commit what has happened: there is nobody to be told that the disk is full.

        So room on it is waited for. Raises StoreFull once `leave` was called, which is as if
        power had failed before.
        """
        while True:
            try:
                result = await self.commit(operation)
            except StoreFull:
                if self._leaving.is_set():
                    raise
                if not self.full:
                    log.error("the disk is full: make room on it; nothing goes on before")
                self.full = True
                with trio.move_on_after(FULL_PAUSE):
                    await self._leaving.wait()
            else:
                if self.full:
                    log.info("there is room on the disk again")
                self.full = False
                return result

    def leave(self) -> None:
        """The program stops: a full disk is not waited for any longer."""
        self._leaving.set()

    def _transact(self, orders: Sequence[Order[sqlite3.Connection]]) -> None:
        transact(self._writer, orders)
        self.commits += 1
        if self._reserve_taken:
            self._reserve_taken = False
            # Only now is it in the file; and what follows is written over the log. Where that
            # fails, what was committed is committed all the same.
            with suppress(sqlite3.OperationalError):
                self._writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
                self._writer.execute("PRAGMA shrink_memory")

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


def transact(writer: sqlite3.Connection, orders: Sequence[Order[sqlite3.Connection]]) -> None:
    """All in one transaction. Raises StoreFailed, StoreFull, or what one of them raises."""
    try:
        writer.execute("BEGIN IMMEDIATE")
        for order in orders:
            order.result = order.operation(writer)
        writer.execute("COMMIT")
    except BaseException as error:
        failed = _fatal(error)
        if writer.in_transaction:
            writer.execute("ROLLBACK")
        raise failed or _translated(error) from error


def _fatal(error: BaseException) -> StoreFailed | None:
    """Errors of the disk itself, after which SQLite's own view of the file is not to be trusted."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreFailed(f"the journal cannot be written: {error}")
    return None


def _translated(error: BaseException) -> BaseException:
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
        return StoreFull("the disk is full")
    return error


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return connect(path, JOURNAL)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError) and _fatal(error) is None:
            raise
        _set_aside(path, str(error))
        return connect(path, JOURNAL)


def connect(path: Path, schema: Schema) -> sqlite3.Connection:
    """Open the file for writing, brought to `schema`.

    Raises sqlite3.DatabaseError for a damaged file, or one of a later version.
    """
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=LOCKED
    )
    try:
        connection.execute("PRAGMA locking_mode=NORMAL")
        _begin_log(connection)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA cache_size=-512")
        damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise sqlite3.DatabaseError(damage)
        if _version(connection) != schema.version:
            _migrate(connection, schema)
    except BaseException:
        connection.close()
        raise
    return connection


def _begin_log(connection: sqlite3.Connection) -> None:
    """SQLite waits for others everywhere but here, where two may begin at one moment."""
    deadline = time.monotonic() + LOCKED
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _migrate(connection: sqlite3.Connection, schema: Schema) -> None:
    """One program at a time: who waited for another finds nothing left to do."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in _statements(schema.steps_from(_version(connection))):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={schema.version}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def reader(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, check_same_thread=False)


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
