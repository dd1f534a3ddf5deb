"""The agent's journal: one SQLite file, written in groups, with room held for an SOS.

What `commit` has returned from survives a power cut (`store.sqlite`). A commit that failed is never
tried again and believed: the journal says so to everyone, once and for all, and its owner stops.
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

from fieldagent.agent.journal import high_water, lived, untouched
from fieldagent.agent.journal.files import ROOM_BYTES, JournalFiles
from fieldagent.agent.journal.opening import damage
from fieldagent.store.group import GroupCommit, NotOnDisk, Order, StoreFailed, StoreFull
from fieldagent.store.sqlite import reader, transact
from fieldagent.store.trouble import Unusable, is_damage
from fieldagent.system.lived_time import LivedTime, MachineClocks, Reading
from fieldagent.system.sentence import sentence

log = logging.getLogger(__name__)

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], T]


def together(*operations: Operation[None]) -> Operation[None]:
    """Return an operation that carries all of these out, in one commit."""

    def store(db: sqlite3.Connection) -> None:
        for operation in operations:
            operation(db)

    return store


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


USABLE_AGAIN = "the disk can be used again, and the agent starts anew with what is on it"


class Journal(GroupCommit[sqlite3.Connection]):
    """`run` must be running for `commit` to return. `read` sees what has been committed.

    `clock` is the time of what is in it; `look` reads the machine's clocks. Where the disk's cannot
    be opened it is in memory if it `may_leave_disk`, and else raises `store.trouble.Unusable`.
    """

    def __init__(
        self,
        path: Path,
        look: Callable[[], Reading] | None = None,
        *,
        may_leave_disk: bool = False,
    ) -> None:
        super().__init__(self._transact)
        self._files = JournalFiles(path, may_leave_disk=may_leave_disk)
        self._move: Callable[[], None] | None = None
        """To be done between two transactions."""
        self.commits = 0
        self.full = False
        """Somebody waits in `persist` for room on the disk."""
        self._leaving = trio.Event()
        self._reserve_taken = False
        """In the transaction under way."""
        self.clock = LivedTime(lived.known(self._files.writer), look or MachineClocks())

    @property
    def path(self) -> Path:
        """Return where it is now."""
        return self._files.path

    @property
    def not_on_disk(self) -> str:
        """Return why it is in memory, in a sentence; empty while it is on the disk."""
        return self._files.not_on_disk

    def read(self, sql: str, *parameters: Any) -> list[Any]:
        """Return the rows of a query on what has been committed. Raises StoreFailed where the file
        is damaged, and the journal has failed from then on."""
        try:
            return self._files.reader.execute(sql, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            raise self.fail(f"the journal is damaged: {error}") from error

    async def read_aside(self, sql: str) -> list[Any]:
        """Read what may take a while, without holding up who else reads."""

        def ask() -> list[Any]:
            with closing(reader(self.path)) as aside:
                return aside.execute(sql).fetchall()

        return await trio.to_thread.run_sync(ask)

    async def look_through(self) -> None:
        """Do the look that was put off, as it was closed in good order: a disk may have spoiled it
        since."""
        if self._files.as_left and (fault := await trio.to_thread.run_sync(damage, self.path)):
            self.fail(f"the journal is damaged: {fault}")

    def require_room(self) -> None:
        """Raise StoreFull, or NotOnDisk, where nothing should be begun."""
        if self.not_on_disk:
            raise NotOnDisk(self.not_on_disk)
        if self._files.free() < ROOM_BYTES:
            left = sentence("less than {size} MiB", size=ROOM_BYTES >> 20)
            raise StoreFull(
                sentence("the disk has {left} left, which are kept for an SOS", left=left)
            )

    async def keep_reserve(self) -> None:
        """See, where there is plenty of room, that the file holds enough that is free in itself,
        and that the log is as long as it will ever be."""
        if self.not_on_disk:
            return
        ((free,),) = self.read("PRAGMA freelist_count")
        log_size = self.path.with_name(self.path.name + "-wal").stat().st_size
        enough = free >= RESERVE_PAGES // 2 and log_size >= RESERVE_PAGES * 4096
        if not enough and self._files.free() >= RESERVE_FROM:
            # In two: what is freed in the transaction that takes it never reaches the disk.
            await self.commit(self._take_reserve)
            await self.commit(_give_reserve)

    def _take_reserve(self, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO reserve VALUES (zeroblob(?))", (RESERVE_PAGES * 4096,))
        self._reserve_taken = True

    async def commit_urgent(self, operation: Operation[T]) -> T:
        """Commit an SOS: where the disk has no room for it, in memory, with all that is here.

        Raises StoreFailed, and StoreFull where there is no room in memory either.
        """
        try:
            return await self.commit(operation)
        except NotOnDisk:
            return await self.commit(operation)
        except StoreFull as full:
            self._move = partial(self._files.to_memory, str(full))
            return await self.commit(operation)

    async def commit_on_disk(self, operation: Operation[T]) -> T:
        """Commit what must not be in memory alone: whoever ordered it before the journal left the
        disk is refused as those after. Raises NotOnDisk, StoreFull, StoreFailed."""

        def unless_in_memory(db: sqlite3.Connection) -> tuple[T] | None:
            return None if self.not_on_disk else (operation(db),)

        done = await self.commit(unless_in_memory)
        if done is None:
            raise NotOnDisk(self.not_on_disk)
        return done[0]

    async def return_to_disk(self, *, idle: Callable[[], bool]) -> None:
        """Go back to the disk, if it takes writes again.

        What the disk had could not be read: then the program has to start anew, which is done while
        it is `idle`, as what is in memory alone would be lost. Raises StoreFailed.
        """
        if not self.not_on_disk:
            return
        if self._files.may_return:
            copy, self._move = self.path, self._files.to_disk
            await self.commit(lambda _: None)
            if not self.not_on_disk:
                self._files.forget(copy)
        elif idle():
            writing = partial(lived.keep, base=self.clock.base())
            takes = await trio.to_thread.run_sync(self._files.can_start_anew, writing)
            # Meanwhile an SOS may have come, or be on its way in: then it is looked at again later.
            if takes and not self.is_busy and idle():
                self.fail(USABLE_AGAIN)

    async def persist(self, operation: Operation[T]) -> T:
        """Commit what has happened: there is nobody to be told that the disk is full.

        So room on it is waited for. Raises StoreFull once `leave` was called, which is as if
        power had failed before.
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
        """Commit at once, before `run`: nobody else writes yet. Raises StoreFailed, StoreFull."""
        order: list[Order[sqlite3.Connection]] = [Order(operation)]
        try:
            transact(self._files.writer, order)
        except StoreFailed as failed:
            with suppress(NotOnDisk):
                self._give_up_disk(failed)
            transact(self._files.writer, order)

    def leave(self) -> None:
        """Note that the program stops: a full disk is not waited for any longer."""
        self._leaving.set()

    def _carry_out_move(self) -> None:
        """Where it fails, the journal stays where it is."""
        move, self._move = self._move, None
        if move is not None:
            try:
                move()
            except (OSError, sqlite3.Error, Unusable) as error:
                log.debug("the journal stays where it is: %s", error)

    def _give_up_disk(self, failed: StoreFailed) -> NoReturn:
        """The disk has refused a commit: an SOS has its way out from memory. Raises NotOnDisk, or
        `failed` where memory does not help."""
        if not self._files.may_leave or self.not_on_disk:
            raise failed
        try:
            self._files.give_up_disk(str(failed))
        except (OSError, sqlite3.Error) as error:
            log.error("nor can the journal go on in memory: %s", error)
            raise failed from None
        raise NotOnDisk(self.not_on_disk) from failed

    def _transact(self, orders: Sequence[Order[sqlite3.Connection]]) -> None:
        self._carry_out_move()
        base = self.clock.due()
        if base is not None:
            orders = [*orders, Order(partial(lived.keep, base=base))]
        try:
            transact(self._files.writer, orders)
        except StoreFailed as failed:
            self._give_up_disk(failed)
        if base is not None:
            self.clock.kept(base)
        self.commits += 1
        if not self.not_on_disk:
            self._files.mark.follow(high_water.of(self._files.writer))
        if self._reserve_taken:
            self._reserve_taken = False
            # Only now is it in the file; and what follows is written over the log. Where that
            # fails, what was committed is committed all the same.
            with suppress(sqlite3.OperationalError):
                self._files.writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
                self._files.writer.execute("PRAGMA shrink_memory")

    def close(self) -> None:
        """Close the files. Unless the journal has failed, what is in memory goes to the disk where
        that can be used again, and lived time is kept."""
        files, copy = self._files, self.path
        if self.not_on_disk and files.may_return and self.failed is None:
            self._move = files.to_disk
            self._carry_out_move()
        if self.failed is None:
            # The machine may be off for a while from here on. It also begins the log anew, which
            # is looked through as far as that at the next start.
            with suppress(StoreFailed, StoreFull, sqlite3.Error):
                files.writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                transact(files.writer, [Order(partial(lived.keep, base=self.clock.base()))])
        files.close(failed=self.failed is not None)
        files.forget(copy)
        if self.failed is None and not self.not_on_disk:
            untouched.note(self.path)
