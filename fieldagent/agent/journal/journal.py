"""The agent's journal: one SQLite file, written in groups, with room held for an SOS.

What `commit` has returned from survives a power cut (`store.sqlite`). A commit that failed is never
tried again and believed: the journal says so to everyone, once and for all, and its owner stops.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio

from fieldagent.agent.journal import high_water, lived, untouched
from fieldagent.agent.journal.opening import damage, open_journal
from fieldagent.store.group import GroupCommit, Order, StoreFailed, StoreFull
from fieldagent.store.sqlite import reader, transact
from fieldagent.store.trouble import is_damage
from fieldagent.system.lived_time import LivedTime, MachineClocks, Reading

log = logging.getLogger(__name__)

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], T]


def together(*operations: Operation[None]) -> Operation[None]:
    """All of them, in one commit."""

    def store(db: sqlite3.Connection) -> None:
        for operation in operations:
            operation(db)

    return store


ROOM_BYTES = 2 << 20
"""What must be free on the disk, or nothing but an SOS is accepted: what is under way needs it."""
RESERVE_PAGES = 1040
"""Pages that the journal's file has free for when nobody gets room on the disk any more. Taking
them makes the log longer than the 1 000 pages at which SQLite begins it anew: neither has to grow
then."""
RESERVE_FROM = 32 << 20
"""What must be free for the reserve to be taken."""
FORGOTTEN_AT_ONCE = 200
"""Rows, with what belongs to them: an SOS that is posted meanwhile waits for that commit."""
FULL_PAUSE = 10.0
"""Seconds until a full disk is tried again."""


def _give_reserve(db: sqlite3.Connection) -> None:
    # There is nothing in it to be overwritten, which Debian's SQLite does with what is deleted.
    ((secure,),) = db.execute("PRAGMA secure_delete").fetchall()
    db.execute("PRAGMA secure_delete=OFF")
    try:
        db.execute("DELETE FROM reserve")
    finally:
        db.execute(f"PRAGMA secure_delete={secure}")


class Journal(GroupCommit[sqlite3.Connection]):
    """`run` must be running for `commit` to return. `read` sees what has been committed.

    `clock` is the time of what is in it; `look` reads the machine's clocks. Raises
    `store.trouble.Unusable`.
    """

    def __init__(self, path: Path, look: Callable[[], Reading] | None = None) -> None:
        super().__init__(self._transact)
        self.path = path
        self.commits = 0
        self.full = False
        """Somebody waits in `persist` for room on the disk."""
        self._leaving = trio.Event()
        self._reserve_taken = False
        """In the transaction under way."""
        self._writer, self._mark, self._as_left = open_journal(path)
        self._reader = reader(path)
        # The system has the file in its memory, too.
        self._reader.execute("PRAGMA cache_size=-512")
        self.clock = LivedTime(lived.known(self._writer), look or MachineClocks())

    def read(self, sql: str, *parameters: Any) -> list[Any]:
        try:
            return self._reader.execute(sql, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            raise self.fail(f"the journal is damaged: {error}") from error

    async def read_aside(self, sql: str) -> list[Any]:
        """What may take a while, without holding up who else reads."""

        def ask() -> list[Any]:
            with closing(reader(self.path)) as aside:
                return aside.execute(sql).fetchall()

        return await trio.to_thread.run_sync(ask)

    async def look_through(self) -> None:
        """What was put off, as it was closed in good order: a disk may have spoiled it since."""
        if self._as_left and (found := await trio.to_thread.run_sync(damage, self.path)):
            self.fail(f"the journal is damaged: {found}")

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
            await self.commit(_give_reserve)

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

    def commit_at_start(self, operation: Operation[None]) -> None:
        """At once, before `run`: nobody else writes yet. Raises StoreFailed, StoreFull."""
        transact(self._writer, [Order(operation)])

    def leave(self) -> None:
        """The program stops: a full disk is not waited for any longer."""
        self._leaving.set()

    def _transact(self, orders: Sequence[Order[sqlite3.Connection]]) -> None:
        base = self.clock.due()
        if base is not None:
            orders = [*orders, Order(partial(lived.keep, base=base))]
        transact(self._writer, orders)
        if base is not None:
            self.clock.kept(base)
        self.commits += 1
        self._mark.follow(high_water.of(self._writer))
        if self._reserve_taken:
            self._reserve_taken = False
            # Only now is it in the file; and what follows is written over the log. Where that
            # fails, what was committed is committed all the same.
            with suppress(sqlite3.OperationalError):
                self._writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
                self._writer.execute("PRAGMA shrink_memory")

    def close(self) -> None:
        self._reader.close()
        if self.failed is None:
            # The machine may be off for a while from here on.
            with suppress(StoreFailed, StoreFull, sqlite3.Error):
                transact(self._writer, [Order(partial(lived.keep, base=self.clock.base()))])
        self._writer.close()
        self._mark.close()
        if self.failed is None:
            untouched.note(self.path)
