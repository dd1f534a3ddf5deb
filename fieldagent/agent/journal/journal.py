"""The agent's journal: one SQLite file, written in group commits, with space reserved for an SOS.

A change survives a power cut once `commit` has returned (`store.sqlite`). A failed commit is never
repeated, because the result of the repeat could not be trusted. Instead, the journal reports the
failure to all callers, and the agent stops.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import trio

from fieldagent.agent.journal import elapsed_base, high_water
from fieldagent.agent.journal.files import (
    FREE_MIN_BYTES,
    JournalFiles,
    find_damage,
    record_closed_state,
)
from fieldagent.store.group import GroupCommit, NotOnDisk, Order, StoreFailed, StoreFull
from fieldagent.store.sqlite import open_reader, transact
from fieldagent.store.trouble import Unusable, is_damage
from fieldagent.system.elapsed_time import ElapsedTime, MachineClocks, Reading
from fieldagent.system.wording import sentence

log = logging.getLogger(__name__)

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], T]


def combine_operations(*operations: Operation[None]) -> Operation[None]:
    """Return an operation that runs all these operations in one commit."""

    def store(db: sqlite3.Connection) -> None:
        for operation in operations:
            operation(db)

    return store


RESERVE_PAGES = 1040
"""Number of free pages that the journal's file keeps for an SOS when the disk is full. Writing
these pages also makes the write-ahead log longer than the 1 000 pages at which SQLite restarts the
log. So neither file needs to grow when the disk is full."""
RESERVE_FREE_MIN_BYTES = 32 << 20
"""Bytes that must be free on the disk before the reserve is taken."""
DELETED_ROWS_MAX = 200
"""Number of rows, with their dependent rows, that one commit deletes. An SOS that is posted during
the commit waits for its end."""
FULL_PAUSE_S = 10.0
"""Seconds between two attempts to write to a full disk."""


def _free_reserve_pages(db: sqlite3.Connection) -> None:
    # Debian's SQLite overwrites deleted content by default, which costs writes and is not needed.
    ((secure,),) = db.execute("PRAGMA secure_delete").fetchall()
    db.execute("PRAGMA secure_delete=OFF")
    try:
        db.execute("DELETE FROM reserve")
    finally:
        db.execute(f"PRAGMA secure_delete={secure}")


DISK_USABLE_NOTICE = "the disk works again; the agent restarts with the data on it"


class Journal(GroupCommit[sqlite3.Connection]):
    """The agent's journal. `commit` works only while `GroupCommit.run` is running. `read` returns
    committed content.

    `clock` returns the journal's elapsed time; `read_clocks` reads the machine's clocks. If the
    disk's journal cannot be opened, the journal is kept in memory if `may_leave_disk`; otherwise
    `store.trouble.Unusable` is raised.
    """

    def __init__(
        self,
        path: Path,
        read_clocks: Callable[[], Reading] | None = None,
        *,
        may_leave_disk: bool = False,
    ) -> None:
        super().__init__(self._transact)
        self._files = JournalFiles(path, may_leave_disk=may_leave_disk)
        self._move: Callable[[], None] | None = None
        """Function that moves the journal between disk and memory. It is called before the next
        transaction. None if no move is planned."""
        self.commits = 0
        self.full = False
        """True while a caller of `persist` waits for space on the disk."""
        self._leaving = trio.Event()
        self._reserve_taken = False
        """True in the transaction that takes the reserve."""
        self.clock = ElapsedTime(
            elapsed_base.read_known(self._files.writer), read_clocks or MachineClocks()
        )

    @property
    def path(self) -> Path:
        """Return the present path of the journal's file, on disk or in memory."""
        return self._files.path

    @property
    def not_on_disk(self) -> str:
        """Return a sentence with the reason why the journal is in memory, or '' while it is on
        disk.
        """
        return self._files.not_on_disk

    def read(self, sql: str, *parameters: Any) -> list[Any]:
        """Run a query on the committed content, and return its rows. If the file is damaged, raise
        StoreFailed. The journal then refuses all further calls.
        """
        try:
            return self._files.reader.execute(sql, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            raise self.fail(f"the journal is damaged: {error}") from error

    async def read_aside(self, sql: str) -> list[Any]:
        """Run a slow query in a thread, on a separate connection, and return the rows. Other tasks
        are not delayed.
        """

        def ask() -> list[Any]:
            with closing(open_reader(self.path)) as aside:
                return aside.execute(sql).fetchall()

        return await trio.to_thread.run_sync(ask)

    async def check_skipped_integrity(self) -> None:
        """Run the integrity check if it was skipped at the start because the journal had been
        closed properly. The disk may have damaged the file since then. If it is damaged, the
        journal refuses all further calls.
        """
        if self._files.as_left and (fault := await trio.to_thread.run_sync(find_damage, self.path)):
            self.fail(f"the journal is damaged: {fault}")

    def require_room(self) -> None:
        """Raise an error if new items must not be accepted: NotOnDisk while the journal is in
        memory, StoreFull if less than FREE_MIN_BYTES are free on the disk.
        """
        if self.not_on_disk:
            raise NotOnDisk(self.not_on_disk)
        if self._files.free() < FREE_MIN_BYTES:
            reason = sentence("less than {size} MiB", size=FREE_MIN_BYTES >> 20)
            raise StoreFull(
                sentence("the disk has {left} left, which are reserved for an SOS", left=reason)
            )

    async def refill_reserve(self) -> None:
        """If the disk has plenty of space, make sure that the file contains enough free pages and
        that the log has its final length.
        """
        if self.not_on_disk:
            return
        ((free,),) = self.read("PRAGMA freelist_count")
        log_size = self.path.with_name(self.path.name + "-wal").stat().st_size
        enough = free >= RESERVE_PAGES // 2 and log_size >= RESERVE_PAGES * 4096
        if not enough and self._files.free() >= RESERVE_FREE_MIN_BYTES:
            # Use two commits, because pages that one transaction both takes and frees never reach
            # the disk.
            await self.commit(self._fill_reserve)
            await self.commit(_free_reserve_pages)

    def _fill_reserve(self, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO reserve VALUES (zeroblob(?))", (RESERVE_PAGES * 4096,))
        self._reserve_taken = True

    async def commit_urgent(self, operation: Operation[T]) -> T:
        """Commit an SOS. If the disk is full, move the journal to memory with its full content and
        commit there.

        Raises StoreFailed, and StoreFull if memory is also full.
        """
        try:
            return await self.commit(operation)
        except NotOnDisk:
            return await self.commit(operation)
        except StoreFull as full:
            self._move = partial(self._files.move_to_memory, str(full))
            return await self.commit(operation)

    async def commit_on_disk(self, operation: Operation[T]) -> T:
        """Commit an operation that must be on disk, not only in memory. The operation is refused
        even if the journal moves to memory only after this call. Raises NotOnDisk, StoreFull,
        StoreFailed.
        """

        def run_unless_in_memory(db: sqlite3.Connection) -> tuple[T] | None:
            return None if self.not_on_disk else (operation(db),)

        result = await self.commit(run_unless_in_memory)
        if result is None:
            raise NotOnDisk(self.not_on_disk)
        return result[0]

    async def return_to_disk(self, *, idle: Callable[[], bool]) -> None:
        """Return to the disk if it accepts writes again.

        If the disk's content could not be read, the program must restart, which loses the content
        that is only in memory. So the restart waits until the program is `idle`. Raises
        StoreFailed.
        """
        if not self.not_on_disk:
            return
        if self._files.may_return:
            copy, self._move = self.path, self._files.return_to_disk
            await self.commit(lambda _: None)
            if not self.not_on_disk:
                self._files.forget(copy)
        elif idle():
            writing = partial(elapsed_base.store_base, base=self.clock.get_base())
            takes = await trio.to_thread.run_sync(self._files.can_write_to_disk, writing)
            # Try later if an SOS has arrived in the meantime or waits for its commit.
            if takes and not self.is_busy and idle():
                self.fail(DISK_USABLE_NOTICE)

    async def persist(self, operation: Operation[T]) -> T:
        """Commit an event that has already happened.

        If the disk is full, the call waits for space, because the caller cannot undo the event.
        After `record_stop`, it raises StoreFull instead; the effect is the same as if power had
        failed before the event.
        """
        while True:
            try:
                result = await self.commit(operation)
            except NotOnDisk:
                continue
            except StoreFull:
                if self._leaving.is_set():
                    raise
                if not self.full:
                    log.error("the disk is full: the agent waits until you free space")
                self.full = True
                with trio.move_on_after(FULL_PAUSE_S):
                    await self._leaving.wait()
            else:
                if self.full:
                    log.info("there is space on the disk again")
                self.full = False
                return result

    def commit_at_start(self, operation: Operation[None]) -> None:
        """Commit without a running `GroupCommit.run`. Call this method before `GroupCommit.run`,
        while there is no other writer. Raises StoreFailed, StoreFull.
        """
        order: list[Order[sqlite3.Connection]] = [Order(operation)]
        try:
            transact(self._files.writer, order)
        except StoreFailed as failed:
            with suppress(NotOnDisk):
                self._leave_disk(failed)
            transact(self._files.writer, order)

    def record_stop(self) -> None:
        """Record that the program stops, so that `persist` no longer waits for space on a full
        disk.
        """
        self._leaving.set()

    def _carry_out_move(self) -> None:
        """Perform the planned move. If the move fails, the journal stays where it is."""
        move, self._move = self._move, None
        if move is not None:
            try:
                move()
            except (OSError, sqlite3.Error, Unusable) as error:
                log.debug("the journal stays in its place: %s", error)

    def _leave_disk(self, failure: StoreFailed) -> NoReturn:
        """Continue in memory after the disk refused a commit, so that an SOS can still be sent.
        Raises NotOnDisk, or `failure` if memory cannot be used either.
        """
        if not self._files.may_leave or self.not_on_disk:
            raise failure
        try:
            self._files.give_up_disk(str(failure))
        except (OSError, sqlite3.Error) as error:
            log.error("the journal cannot continue in memory either: %s", error)
            raise failure from None
        raise NotOnDisk(self.not_on_disk) from failure

    def _transact(self, orders: Sequence[Order[sqlite3.Connection]]) -> None:
        self._carry_out_move()
        base = self.clock.get_due_base()
        if base is not None:
            orders = [*orders, Order(partial(elapsed_base.store_base, base=base))]
        try:
            transact(self._files.writer, orders)
        except StoreFailed as failed:
            self._leave_disk(failed)
        if base is not None:
            self.clock.mark_kept(base)
        self.commits += 1
        if not self.not_on_disk:
            self._files.mark.follow(high_water.read_highest_numbers(self._files.writer))
        if self._reserve_taken:
            self._reserve_taken = False
            # This checkpoint moves the free pages from the log to the file, and lets later writes
            # reuse the log. If the checkpoint fails, the commit is still valid.
            with suppress(sqlite3.OperationalError):
                self._files.writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
                self._files.writer.execute("PRAGMA shrink_memory")

    def close(self) -> None:
        """Close the files. If the journal has not failed, store the elapsed time first. If content
        is only in memory, write it to the disk if possible.
        """
        files, copy = self._files, self.path
        if self.not_on_disk and files.may_return and self.failed is None:
            self._move = files.return_to_disk
            self._carry_out_move()
        if self.failed is None:
            # The machine may now be switched off, so sync everything. The checkpoint also restarts
            # the log, so that the next start has a shorter log to check.
            with suppress(StoreFailed, StoreFull, sqlite3.Error):
                files.writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                transact(
                    files.writer,
                    [Order(partial(elapsed_base.store_base, base=self.clock.get_base()))],
                )
        files.close(has_failed=self.failed is not None)
        files.forget(copy)
        if self.failed is None and not self.not_on_disk:
            record_closed_state(self.path)
