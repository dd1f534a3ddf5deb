"""The files of an open journal: on its disk, or in memory while the disk takes no writes.

An SOS goes out all the same. What the disk's journal holds is in memory too, where it can be read;
what happens meanwhile is not on the disk: whoever posts an SOS is told so, and nothing else is
accepted.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fieldagent.agent.journal.opening import Opened, open_journal
from fieldagent.agent.journal.schema import JOURNAL
from fieldagent.store.group import Order, StoreFailed, StoreFull
from fieldagent.store.sqlite import close_keeping_log, connect, copy_whole, reader, transact
from fieldagent.store.trouble import Unusable

log = logging.getLogger(__name__)

MEMORY = "/dev/shm", "/run"
"""Folders in memory; where none can be used, the one for temporary files."""
ROOM_BYTES = 2 << 20
"""What must be free on the disk, or nothing but an SOS is accepted: what is under way needs it."""


TRIES, PAUSE = 2, 0.5
"""At a disk that may have failed once, and seconds between them."""


class JournalFiles:
    """Raises `store.trouble.Unusable` where neither disk nor memory takes a journal."""

    def __init__(self, home: Path, *, may_leave_disk: bool) -> None:
        self._home = self.path = home
        """Where it belongs, and where it is."""
        self._folder = home.parent
        self.not_on_disk = ""
        """Why it is in memory, in a sentence; empty while it is on the disk."""
        self.may_return = True
        """It holds all that the disk's holds, and can be written back over it. Not where a commit
        has failed: of what was written before it on that disk, nobody knows what is there."""
        self.may_leave = may_leave_disk
        self._others: list[sqlite3.Connection] = []
        """Writer and reader of where it is not now: somebody may still read."""
        try:
            opened = _opened(home, tries=TRIES if may_leave_disk else 1)
        except Unusable as trouble:
            if not may_leave_disk:
                raise
            opened = self._open_in_memory(trouble)
        self.writer, self.mark, self.as_left = opened
        self.reader = reader(self.path)
        # The system has the file in its memory, too.
        self.reader.execute("PRAGMA cache_size=-512")

    def free(self) -> int:
        """Return the bytes that are free on its disk."""
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize

    def can_start_anew(self, writing: Callable[[sqlite3.Connection], None]) -> bool:
        """Return whether the disk's journal can be opened and takes what `writing` writes."""
        try:
            opened = open_journal(self._home)
        except Unusable:
            return False
        try:
            transact(opened.connection, [Order(writing)])
        except (StoreFailed, StoreFull, sqlite3.Error):
            return False
        finally:
            opened.connection.close()
            opened.mark.close()
        return True

    def _open_in_memory(self, trouble: Unusable) -> Opened:
        """Open a copy, mended where it is damaged, or an empty one where nothing can be read.
        Raises Unusable: the `trouble`, where memory does not help."""
        try:
            try:
                self.path = _copy_of_files(self._home)
                opened = open_journal(self.path)
                self.may_return = not list(self.path.parent.glob("*.bad"))
            except (OSError, Unusable):
                self.may_return = False
                self.path = _folder() / self._home.name
                opened = open_journal(self.path)
        except (OSError, Unusable):
            raise trouble from None
        self._tell(str(trouble))
        return opened

    def _tell(self, why: str) -> None:
        self.not_on_disk = why
        log.error("%s. Until then only an SOS is taken, from memory: it is not on disk", why)

    def to_memory(self, why: str) -> None:
        """Go on in memory, with all that is here, unless it is there already: two who find the disk
        full at one moment both order it. Raises OSError, sqlite3.Error."""
        if self.not_on_disk:
            return
        copy = _folder() / self._home.name
        try:
            copy_whole(self.reader, copy)
            writer = connect(copy, JOURNAL, checked=True)
        except BaseException:
            _remove(copy)
            raise
        self._others = [self.writer, self.reader]
        self.writer, self.reader, self.path = writer, reader(copy), copy
        self._tell(why)

    def give_up_disk(self, why: str) -> None:
        """Go on in memory after a commit that failed, with all that was committed before it, and
        begin anew once the disk can be used. Raises OSError, sqlite3.Error."""
        self.to_memory(why)
        self.may_return = False

    def to_disk(self) -> None:
        """Go back. Raises Unusable, sqlite3.Error: it stays in memory."""
        if self.free() < 2 * self.path.stat().st_size + ROOM_BYTES:
            raise Unusable("the disk has too little room")
        if not self._others:
            opened = open_journal(self._home)
            self.mark.close()
            self.mark = opened.mark
            self._others = [opened.connection, reader(self._home)]
        self.reader.backup(self._others[0])
        self._others, (self.writer, self.reader) = [self.writer, self.reader], self._others
        self.path, self.not_on_disk = self._home, ""
        log.info("the journal is on the disk again, with all that happened meanwhile")

    def forget(self, copy: Path) -> None:
        """Remove a `copy` in memory that is used no more, and what else is open."""
        for connection in self._others:
            connection.close()
        self._others = []
        if copy != self._home:
            _remove(copy)

    def close(self, *, failed: bool) -> None:
        """Close it. Where a commit has `failed`, what of it is in the log is not to come back."""
        if failed:
            self.reader.close()
            self.writer.close()
        else:
            close_keeping_log(self.writer, self.reader)
        self.mark.close()


def _opened(home: Path, tries: int) -> Opened:
    """Raises Unusable."""
    while True:
        tries -= 1
        try:
            return open_journal(home)
        except Unusable:
            if not tries:
                raise
        time.sleep(PAUSE)


def _copy_of_files(home: Path) -> Path:
    """Raises OSError."""
    copy = _folder() / home.name
    try:
        for suffix in ("", "-wal"):
            part = home.with_name(home.name + suffix)
            if part.exists() or not suffix:
                shutil.copyfile(part, copy.with_name(copy.name + suffix))
    except OSError:
        _remove(copy)
        raise
    return copy


def _remove(copy: Path) -> None:
    shutil.rmtree(copy.parent, ignore_errors=True)


def _folder() -> Path:
    """Make a folder of our own. Raises OSError."""
    for place in MEMORY:
        with suppress(OSError):
            return Path(tempfile.mkdtemp(prefix="fieldagent-", dir=place))
    return Path(tempfile.mkdtemp(prefix="fieldagent-"))
