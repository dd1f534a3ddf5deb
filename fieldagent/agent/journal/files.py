"""Files of an open journal: on disk, or in memory while the disk accepts no writes.

An SOS must be sent even if the disk accepts no writes. If the disk's journal can be read, its
content is copied to memory. A power cut destroys the content of the memory. So the sender of an SOS
is notified that the SOS is not on disk, and other items are refused.
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

from fieldagent.agent.journal.opening import OpenedJournal, open_journal
from fieldagent.agent.journal.schema import JOURNAL
from fieldagent.store.group import Order, StoreFailed, StoreFull
from fieldagent.store.sqlite import close_keeping_log, connect, copy_whole, open_reader, transact
from fieldagent.store.trouble import Unusable

log = logging.getLogger(__name__)

MEMORY = "/dev/shm", "/run"
"""Folders in memory. If none of them is usable, the folder for temporary files is used."""
FREE_MIN_BYTES = 2 << 20
"""Bytes that must be free on the disk before items other than an SOS are accepted, because accepted
items need space too."""


OPEN_ATTEMPTS, OPEN_PAUSE_S = 2, 0.5
"""Number of attempts to open the journal (a disk may fail once), and the seconds between two
attempts."""


class JournalFiles:
    """Opens the files of one journal, and moves them between disk and memory. Raises
    `store.trouble.Unusable` if neither disk nor memory can hold a journal.
    """

    def __init__(self, folder: Path, *, may_leave_disk: bool) -> None:
        self._home = self.path = folder
        """Path of the journal on disk, and the path that is used now."""
        self._folder = folder.parent
        self.not_on_disk = ""
        """Sentence with the reason why the journal is in memory. Empty while the journal is on
        disk."""
        self.may_return = True
        """True if the journal in memory contains the whole content of the disk's journal, so that
        it can replace the disk's journal. False after a failed commit, because it is then unknown
        which writes are on the disk."""
        self.may_leave = may_leave_disk
        self._others: list[sqlite3.Connection] = []
        """Writer and reader of the journal in the other place (disk or memory). Both stay open,
        because the reader may still be in use."""
        try:
            opened = _open_journal(folder, tries=OPEN_ATTEMPTS if may_leave_disk else 1)
        except Unusable as trouble:
            if not may_leave_disk:
                raise
            opened = self._open_in_memory(trouble)
        self.writer, self.mark, self.as_left = opened
        self.reader = open_reader(self.path)
        # Keep the cache small, because the system also caches the file.
        self.reader.execute("PRAGMA cache_size=-512")

    def free(self) -> int:
        """Return the free bytes of the journal's disk."""
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize

    def can_write_to_disk(self, writing: Callable[[sqlite3.Connection], None]) -> bool:
        """Return True if the disk's journal can be opened and the function `writing` succeeds on
        it.
        """
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

    def _open_in_memory(self, trouble: Unusable) -> OpenedJournal:
        """Open a copy of the disk's journal in memory. A damaged copy is repaired. If no content
        can be read, open an empty journal. Raises `trouble` if no journal can be opened in memory
        either.
        """
        try:
            try:
                self.path = _copy_files(self._home)
                opened = open_journal(self.path)
                self.may_return = not list(self.path.parent.glob("*.bad"))
            except (OSError, Unusable):
                self.may_return = False
                self.path = _make_folder() / self._home.name
                opened = open_journal(self.path)
        except (OSError, Unusable):
            raise trouble from None
        self._report_change(str(trouble))
        return opened

    def _report_change(self, reason: str) -> None:
        self.not_on_disk = reason
        log.error("%s. Until then only an SOS is accepted, in memory: it is not on disk", reason)

    def move_to_memory(self, reason: str) -> None:
        """Continue in memory with the full content. If the journal is already in memory, do
        nothing, because two callers may find the disk full at the same time. Raises OSError,
        sqlite3.Error.
        """
        if self.not_on_disk:
            return
        copy = _make_folder() / self._home.name
        try:
            copy_whole(self.reader, copy)
            writer = connect(copy, JOURNAL, is_checked=True)
        except BaseException:
            _remove(copy)
            raise
        self._others = [self.writer, self.reader]
        self.writer, self.reader, self.path = writer, open_reader(copy), copy
        self._report_change(reason)

    def give_up_disk(self, reason: str) -> None:
        """After a failed commit, continue in memory with everything that was committed before. The
        agent restarts when the disk is usable again. Raises OSError, sqlite3.Error.
        """
        self.move_to_memory(reason)
        self.may_return = False

    def return_to_disk(self) -> None:
        """Copy the journal in memory to the disk, and continue on the disk. If Unusable or
        sqlite3.Error is raised, the journal stays in memory.
        """
        if self.free() < 2 * self.path.stat().st_size + FREE_MIN_BYTES:
            raise Unusable("the disk has too little space")
        if not self._others:
            opened = open_journal(self._home)
            self.mark.close()
            self.mark = opened.mark
            self._others = [opened.connection, open_reader(self._home)]
        self.reader.backup(self._others[0])
        self._others, (self.writer, self.reader) = [self.writer, self.reader], self._others
        self.path, self.not_on_disk = self._home, ""
        log.info("the journal is on the disk again, with all events since then")

    def forget(self, copy: Path) -> None:
        """Delete an unused copy in memory, and close its connections."""
        for connection in self._others:
            connection.close()
        self._others = []
        if copy != self._home:
            _remove(copy)

    def close(self, *, has_failed: bool) -> None:
        """Close the journal. If `has_failed`, delete the content that a failed commit left in the
        write-ahead log.
        """
        if has_failed:
            self.reader.close()
            self.writer.close()
        else:
            close_keeping_log(self.writer, self.reader)
        self.mark.close()


def _open_journal(folder: Path, tries: int) -> OpenedJournal:
    """Open the journal, with `tries` attempts. Raises Unusable."""
    while True:
        tries -= 1
        try:
            return open_journal(folder)
        except Unusable:
            if not tries:
                raise
        time.sleep(OPEN_PAUSE_S)


def _copy_files(folder: Path) -> Path:
    """Copy the journal's files to memory, and return the path of the copy. Raises OSError."""
    copy = _make_folder() / folder.name
    try:
        for suffix in ("", "-wal"):
            part = folder.with_name(folder.name + suffix)
            if part.exists() or not suffix:
                shutil.copyfile(part, copy.with_name(copy.name + suffix))
    except OSError:
        _remove(copy)
        raise
    return copy


def _remove(copy: Path) -> None:
    shutil.rmtree(copy.parent, ignore_errors=True)


def _make_folder() -> Path:
    """Create a private folder, in memory if possible, and return its path. Raises OSError."""
    for folder in MEMORY:
        with suppress(OSError):
            return Path(tempfile.mkdtemp(prefix="fieldagent-", dir=folder))
    return Path(tempfile.mkdtemp(prefix="fieldagent-"))
