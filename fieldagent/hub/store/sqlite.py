"""The hub's store in one SQLite file. One hub process and administration commands can use the file
at the same time.
"""

from __future__ import annotations

import logging
import random
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import trio

from fieldagent.hub.store.contract import (
    ANY_WRITE_TOPIC,
    FRESH_S,
    Db,
    Topics,
    WrongTableVersion,
    write_proof,
)
from fieldagent.hub.store.copies import back_up, refuse_lost_database, set_aside_log_of_another
from fieldagent.hub.store.schema import make_hub_schema
from fieldagent.hub.store.shared_reads import SharedReads
from fieldagent.store.group import GroupCommit, Order, StoreFailed, StoreFull, StoreUnavailable
from fieldagent.store.schema import WrongVersion
from fieldagent.store.sqlite import (
    LOCK_WAIT_MAX_S,
    close_keeping_log,
    connect,
    open_reader,
    transact,
)
from fieldagent.store.trouble import is_damage, make_unusable
from fieldagent.system.file_writes import FileWrites

log = logging.getLogger(__name__)

T = TypeVar("T")
A = TypeVar("A")

TYPES = {
    "id": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "int": "INTEGER",
    "real": "REAL",
    "blob": "BLOB",
}

POLL_INTERVAL_S = 1.0
"""Seconds between two checks for writes by other processes, if there are constant writes or inotify
is not available."""
CHECK_INTERVAL_MAX_S = 60.0
"""Seconds after which the store checks for writes even if inotify has reported none."""
COMMIT_LATE_S = 1.5
"""Seconds that a commit may take before the health check stops waiting for its result."""


class _SqliteDb:
    takes_lists = False

    def __init__(self, connection: sqlite3.Connection, worker: int) -> None:
        self.worker = worker
        self._connection = connection
        self._before = connection.total_changes
        self._announced: set[str] = set()

    @property
    def living_workers(self) -> str:
        return f"SELECT {self.worker}"

    def for_update(self, of: str = "") -> str:
        return ""

    def skip_locked(self, of: str = "") -> str:
        return ""

    def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, parameters).fetchall()

    def write(self, sql: str, *parameters: Any) -> None:
        self._connection.execute(sql, parameters)

    def announce(self, topic: str) -> None:
        self._announced.add(topic)

    def get_topics(self) -> set[str]:
        """Return the topics to announce. The result is empty if the operation has neither written
        nor announced anything.
        """
        has_written = self._connection.total_changes != self._before
        return self._announced | {ANY_WRITE_TOPIC} if has_written else self._announced


class SqliteStore:
    """Implements `Store` with an SQLite file."""

    shared = False
    _full = False
    """True if the disk was full at the last write."""
    _last_write = -inf
    """Time of the last commit, in time.monotonic."""
    _begun_at: float | None = None
    """Time when the running transaction began, in time.monotonic; None if no transaction is
    running."""
    _serves = False
    """True if a hub uses the store, False if only a single command does."""
    _has_failed = False
    """True if the disk refused a commit. In this case, the log must not remain when the store is
    closed, because it may contain this commit."""

    def __init__(self, path: str) -> None:
        self._file = file = Path(path)
        try:
            refuse_lost_database(file)
            set_aside_log_of_another(file)
            self._writer = connect(file, make_hub_schema(TYPES), is_marked=True)
            self._reader = open_reader(file)
            # A commit must not fail because it reads a text that is damaged.
            self._writer.text_factory = self._reader.text_factory
        except (OSError, sqlite3.Error) as error:
            if isinstance(error, WrongVersion):
                raise WrongTableVersion(str(make_unusable(file, error))) from error
            if not is_damage(error):
                raise StoreFailed(str(make_unusable(file, error))) from error
            raise StoreFailed(
                f"the database {path} is damaged: {error}; restore it from a backup, or name"
                " another with --database"
            ) from error
        self._worker = random.randrange(1, 2**31)
        """Number of this hub. It is the only hub that uses the file."""
        self._group: GroupCommit[sqlite3.Connection] = GroupCommit(self._transact)
        self._shared: dict[Callable[..., Any], Callable[..., Any]] = {}
        """Operation that a group of callers shares, by the operation of each caller."""
        self._readers = SharedReads(self.read)
        self._topics = Topics()
        self._changes = _read_data_version(self._reader)
        self._changes_of_others = _read_data_version(self._writer)

    def _open_db(self, connection: sqlite3.Connection) -> _SqliteDb:
        return _SqliteDb(connection, self._worker)

    def _run_together(
        self,
        operation: Callable[[Db, Sequence[A]], Sequence[T]],
        connection: sqlite3.Connection,
        arguments: Sequence[A],
    ) -> list[tuple[T, set[str]]]:
        db = self._open_db(connection)
        return [(result, db.get_topics()) for result in operation(db, arguments)]

    def _transact(self, orders: Sequence[Order[sqlite3.Connection]]) -> None:
        before, self._begun_at = self._writer.total_changes, time.monotonic()
        try:
            transact(self._writer, orders)
        except StoreFull:
            self._full = True
            raise
        except StoreFailed:
            self._has_failed = True
            raise
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            raise StoreUnavailable(
                f"another program has kept {self._file} locked for {LOCK_WAIT_MAX_S:g} s"
            ) from error
        finally:
            self._begun_at = None
        if self._writer.total_changes != before:
            self._full, self._last_write = False, time.monotonic()

    async def prove(self) -> None:
        started_at, now = self._begun_at, time.monotonic()
        if started_at is not None and now - started_at > COMMIT_LATE_S:
            raise StoreUnavailable(
                f"{self._file} has not completed a write for {now - started_at:.0f} s"
            )
        if self._full or now - self._last_write > FRESH_S:
            full = self._full
            # The write is not announced, because no task waits for it.
            await self._group.commit(
                lambda writer: write_proof(self._open_db(writer), time.time(), needs_room=full)
            )

    async def commit(self, operation: Callable[[Db], T]) -> T:
        def carry_out(connection: sqlite3.Connection) -> tuple[T, set[str]]:
            db = self._open_db(connection)
            return operation(db), db.get_topics()

        result, topics = await self._group.commit(carry_out)
        self._announce(topics)
        return result

    async def commit_together(
        self, operation: Callable[[Db, Sequence[A]], Sequence[T]], argument: A
    ) -> T:
        if operation not in self._shared:
            self._shared[operation] = partial(self._run_together, operation)
        result, topics = await self._group.commit_together(self._shared[operation], argument)
        self._announce(topics)
        answer: T = result
        return answer

    async def read_together(
        self, operation: Callable[[Db, Sequence[A]], Sequence[T]], argument: A
    ) -> T:
        result: T = await self._readers.read_shared(operation, argument)
        return result

    async def read(self, operation: Callable[[Db], T]) -> T:
        await trio.lowlevel.checkpoint()
        return operation(self._open_db(self._reader))

    def get_event(self, topic: str) -> trio.Event:
        return self._topics.get_event(topic)

    def wake(self, event: trio.Event, topics: Collection[str]) -> None:
        self._topics.wake(event, topics)

    async def run(self) -> StoreFailed | None:
        self._serves = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._check_other_writers)
            await self._group.run()
            nursery.cancel_scope.cancel()
        return self._group.failed

    def _announce(self, topics: set[str]) -> None:
        if topics:
            self._topics.announce(topics)

    async def _check_other_writers(self) -> None:
        with _watch_writes(self._file) as writes:
            while True:
                is_announced = await self._announce_other_writes()
                await trio.sleep(POLL_INTERVAL_S)
                if is_announced:
                    await self._wait_for_write(writes)

    async def _wait_for_write(self, writes: FileWrites | None) -> None:
        """Wait until this process or another process has begun a commit."""
        while True:
            if writes is None:
                await trio.sleep(POLL_INTERVAL_S)
            else:
                with trio.move_on_after(CHECK_INTERVAL_MAX_S):
                    await writes.wait()
                    return
            if (version := _read_data_version(self._reader)) != self._changes:
                self._changes = version
                return

    async def _announce_other_writes(self) -> bool:
        """Announce all topics if another process has written. Return False if the store was
        unavailable.

        The check uses the connection that writes, because the connection that reads cannot
        distinguish this process's writes from those of other processes. While another process
        commits, the check waits, so it misses no write.
        """
        try:
            version = await self._group.commit(_read_data_version)
        except StoreUnavailable:
            return False
        if version != self._changes_of_others:
            self._changes_of_others = version
            self._topics.announce_all()
        return True

    def run_once(self, operation: Callable[[Db], T]) -> T:
        order: Order[sqlite3.Connection] = Order(lambda writer: operation(self._open_db(writer)))
        self._transact([order])
        result: T = order.result
        return result

    def back_up(self, target: Path, report: Callable[[int, int], None] | None = None) -> None:
        """Write a backup (see `copies.back_up`)."""
        back_up(self._reader, target, report)

    def close(self) -> None:
        if self._serves and not self._has_failed:
            close_keeping_log(self._writer, self._reader)
            return
        self._reader.close()
        self._writer.close()


@contextmanager
def _watch_writes(file: Path) -> Iterator[FileWrites | None]:
    """Watch the write-ahead log, which exists while a program has the file open. Yield None if
    inotify is not available.
    """
    try:
        writes = FileWrites(file.with_name(f"{file.name}-wal"))
    except OSError as error:
        log.warning(
            "the kernel does not report writes of other programs to %s (inotify: %s), so the hub"
            " checks every %g s; raise the limit and restart it",
            file,
            error,
            POLL_INTERVAL_S,
        )
        yield None
        return
    with closing(writes):
        yield writes


def _read_data_version(connection: sqlite3.Connection) -> int:
    """Return a number that changes with each commit of another connection (PRAGMA data_version)."""
    ((version,),) = connection.execute("PRAGMA data_version").fetchall()
    return int(version)
