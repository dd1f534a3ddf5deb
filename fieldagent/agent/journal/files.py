"""Files of the journal: on disk, or in memory while the disk accepts no writes. At the start of the
agent, checks the journal before any write, and calls `repair` if it is damaged.

A full disk, a lock or a later version is not damage (`store.trouble`). A damaged journal is kept
unchanged. An extension may copy its intact content to a new journal. The new journal is written
beside the damaged one, and replaces it either completely or not at all, even if power fails.

A small file beside the journal describes the journal's state when it was closed properly. If the
journal is unchanged since then, it is intact, so its integrity check can wait until the agent has
started. For a long journal, the check takes half a second on a PC, and much longer on a small
gateway. The file is deleted when it is read, so that it never describes a later state.

An SOS must be sent even if the disk accepts no writes. If the disk's journal can be read, its
content is copied to memory. Because a power cut destroys this copy, the sender of an SOS is
notified that the SOS is not on disk, and other items are refused.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from fieldagent.agent.journal import elapsed_base, high_water, losses
from fieldagent.agent.journal.high_water import HighWater, HighWaterFile
from fieldagent.agent.journal.schema import JOURNAL, RANDOM_NUMBER_SQL, UNSOUND_ROWS_SQL
from fieldagent.store.group import Order, StoreFailed, StoreFull
from fieldagent.store.sqlite import close_keeping_log, connect, copy_whole, open_reader, transact
from fieldagent.store.trouble import Unusable, is_damage, make_unusable
from fieldagent.system.folder import make_private_file, make_private_folder, sync_folder
from fieldagent.system.lazy_named_tuple import NamedTuple

log = logging.getLogger(__name__)


def record_closed_state(path: Path) -> None:
    """Store the state of a journal that has just been closed. If this file is missing, the journal
    is checked at the next start.
    """
    with suppress(OSError):
        make_private_file(_make_state_path(path))
        _make_state_path(path).write_text(_describe_files(path))


def consume_closed_state(path: Path) -> bool:
    """Return True if the journal is unchanged since it was closed properly, and delete the file
    with its state.
    """
    state_path = _make_state_path(path)
    try:
        stamp = state_path.read_text(errors="replace")
        state_path.unlink()
        return stamp == _describe_files(path)
    except OSError:
        return False


def _make_state_path(path: Path) -> Path:
    return path.with_name(f"{path.name}-closed")


def _describe_files(path: Path) -> str:
    """Return the inode, size and times of the file and its log. Any write to these files changes
    this text.
    """
    files = [each.stat() for each in (path, path.with_name(f"{path.name}-wal")) if each.exists()]
    return "".join(f"{at.st_ino} {at.st_size} {at.st_mtime_ns} {at.st_ctime_ns}\n" for at in files)


FILES = ("-wal", "-shm", "")
"""Files of a journal, the main file last."""
REPAIRED_SUFFIX = "-repaired"
"""Suffix of a new journal that is complete but has not replaced the damaged one yet."""
FIXED_HEADER_BYTES = (16, 0), (0, 64, 32, 32)
"""Values of the bytes 16, 17 and 20 to 23 in each of our files
(https://sqlite.org/fileformat2.html#1.3). If these bytes have other values, SQLite treats the file
as another kind of file, or as read-only."""


class JournalDamage(sqlite3.DatabaseError):
    """Error: the agent's own checks, not SQLite, found damage in the journal."""


class OpenedJournal(NamedTuple):
    connection: sqlite3.Connection
    mark: HighWaterFile
    are_checks_skipped: bool
    """True if the checks were skipped, because the file was not changed since it was closed
    properly."""


def open_journal(path: Path) -> OpenedJournal:
    """Open the journal, and repair it if it is damaged. Raises Unusable for errors that are not
    damage, so that an intact journal is never set aside.
    """
    try:
        make_private_folder(path.parent)
        _install_repaired(path)
        mark = HighWaterFile(_make_path_beside(path, "-mark"))
        try:
            as_left = consume_closed_state(path)
            connection = _open(path, mark, is_unchanged=as_left)
            _raise_numbers(path, connection, mark.mark)
            mark.follow(high_water.read_highest_numbers(connection))
        except BaseException:
            mark.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise make_unusable(path, error) from error
    return OpenedJournal(connection, mark, as_left)


def find_damage(path: Path) -> str:
    """Return the first damage found in the journal, or '' if the journal is intact. Nothing is
    written.
    """
    try:
        with closing(open_reader(path)) as looker:
            _run_integrity_check(looker)
            _check_rows(looker)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return str(error)
    return ""


def _run_integrity_check(connection: sqlite3.Connection) -> None:
    ((result,),) = connection.execute("PRAGMA integrity_check(1)")
    if result != "ok":
        raise JournalDamage(result)


def _open(path: Path, mark: HighWaterFile, *, is_unchanged: bool) -> sqlite3.Connection:
    try:
        _check_journal(path, mark, is_unchanged=is_unchanged)
        mark.open_as(JOURNAL.version)
        connection = connect(path, JOURNAL, is_checked=True)
        try:
            _check_tables(connection)
            if not is_unchanged:
                _check_rows(connection)
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if isinstance(error, sqlite3.Error) and not _is_about_damage(error):
            raise
        _replace_damaged_journal(path, mark.mark, " ".join(str(error).split()))
        mark.open_as(JOURNAL.version)
        connection = connect(path, JOURNAL, is_checked=True)
    return connection


def _is_about_damage(error: sqlite3.Error) -> bool:
    # An SQL error means a missing table or column, which is damage, because our own statements are
    # correct.
    code = getattr(error, "sqlite_errorcode", None)
    return is_damage(error) or (code is not None and code & 0xFF == sqlite3.SQLITE_ERROR)


def _check_journal(path: Path, file: HighWaterFile, *, is_unchanged: bool) -> None:
    """Check the journal without writing, because opening it for writing may destroy its log. Raises
    the error that it finds, or WrongVersion if this program cannot use the journal's version.
    """
    mark = file.mark
    if path.is_file() and _make_path_beside(path, "-journal").exists():
        _roll_back_creation(path)
    if not path.exists() or not path.stat().st_size:
        if mark != HighWater():
            raise JournalDamage("it is empty" if path.exists() else "the file is gone")
        return
    if path.is_dir():
        return
    with path.open("rb") as journal:
        head = journal.read(24)
    if (tuple(head[16:18]), tuple(head[20:24])) != FIXED_HEADER_BYTES or not {*head[18:20]} <= {
        1,
        2,
    }:
        raise JournalDamage("its head is damaged")
    with closing(open_reader(path)) as looker:
        ((version,),) = looker.execute("PRAGMA user_version")
        if version and JOURNAL.can_use(file.version) and not JOURNAL.can_use(version):
            raise JournalDamage(f"no program has given it the version {version}")
        JOURNAL.judge(version)
        if not is_unchanged:
            _run_integrity_check(looker)
        if _is_behind(looker, mark) and _has_content(_make_path_beside(path, "-wal")):
            raise JournalDamage("the last entries are lost, because its log was cut or damaged")


def _roll_back_creation(path: Path) -> None:
    """Undo the unfinished creation of a journal, if power failed before the journal had a
    write-ahead log. This needs a writable connection, because a read-only connection may not roll
    back (https://sqlite.org/lockingv3.html#hot_journals).
    """
    with closing(sqlite3.connect(path)) as maker:
        maker.execute("SELECT 1 FROM sqlite_schema").fetchall()


def _is_behind(connection: sqlite3.Connection, mark: HighWater) -> bool:
    """Return True if the journal's numbers are lower than the numbers in the file beside it."""
    numbers: dict[str, int | None] = {}
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'").fetchall():
        numbers = dict(connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    package, payload = numbers.get("package") or 0, numbers.get("inbound") or 0
    return package < mark.package or payload < mark.payload


def _has_content(log: Path) -> bool:
    return log.exists() and log.stat().st_size > 0


def _raise_numbers(path: Path, connection: sqlite3.Connection, mark: HighWater) -> None:
    """Continue an intact journal whose numbers are lower than those in the file beside it, because
    an older copy was restored or the log was lost. Use numbers above those already used, and a new
    journal number, so that peers send the missing items again.
    """
    highest_known = high_water.read_highest_numbers(connection)
    if highest_known.package >= mark.package and highest_known.payload >= mark.payload:
        return
    base = elapsed_base.read_known(connection)
    now = time.time() - (0.0 if base is None else base.offset)
    connection.execute("BEGIN IMMEDIATE")
    missing = high_water.raise_numbers(connection, mark)
    connection.execute(f"UPDATE beginning SET number = {RANDOM_NUMBER_SQL}")
    text = (
        "the last entries are lost: their log is missing, or an older copy was restored."
        f" The rest is complete; received payloads lost: {missing.payload}; unknown: the last"
        f" {missing.package} accepted. Post those again"
    )
    losses.store_loss(connection, losses.Loss(now, text, missing.package, missing.payload))
    connection.execute("COMMIT")
    log.error("the journal %s: %s", path, text)


def _check_tables(connection: sqlite3.Connection) -> None:
    with closing(sqlite3.connect(":memory:")) as our_database:
        our_database.executescript(JOURNAL.tables)
        names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        for (name,) in our_database.execute(names).fetchall():
            columns = f"SELECT name, type, \"notnull\", pk FROM pragma_table_info('{name}')"
            if our_database.execute(columns).fetchall() != connection.execute(columns).fetchall():
                raise JournalDamage(f"the table {name} was changed")


def _check_rows(connection: sqlite3.Connection) -> None:
    for table, unsound in UNSOUND_ROWS_SQL.items():
        if connection.execute(f"SELECT 1 FROM {table} WHERE {unsound} LIMIT 1").fetchall():
            raise JournalDamage(f"the table {table} has entries that the agent did not write")
    if alone := connection.execute("PRAGMA foreign_key_check").fetchone():
        raise JournalDamage(f"the table {alone[0]} has orphaned entries")


def _replace_damaged_journal(path: Path, mark: HighWater, reason: str) -> None:
    """Replace the damaged journal at `path` by an intact one that contains everything that can be
    saved. Raises sqlite3.Error, OSError.
    """
    # Import this module only now, so that an agent with an intact journal saves the memory.
    from fieldagent.agent.journal.repair import write_repaired_journal

    new, damaged = _make_path_beside(path, "-mending"), _make_name(path)
    for suffix in FILES:
        _make_path_beside(new, suffix).unlink(missing_ok=True)
    saved = write_repaired_journal(path, new, mark, reason, damaged.name)
    new.rename(_make_path_beside(path, REPAIRED_SUFFIX))
    _install_repaired(path)
    log.error(
        "the journal was damaged (%s): %s. The damaged one is kept as %s; `fieldagent status`"
        " shows this again",
        reason,
        saved,
        damaged.name,
    )


def _install_repaired(path: Path) -> None:
    """If there is a repaired journal, rename the damaged journal and move the repaired one to its
    place.
    """
    repaired = _make_path_beside(path, REPAIRED_SUFFIX)
    if not repaired.exists():
        return
    damaged = _make_name(path)
    for suffix in FILES:
        part = _make_path_beside(path, suffix)
        if part.exists():
            part.rename(_make_path_beside(damaged, suffix))
    repaired.rename(path)
    sync_folder(path.parent)


def _make_name(path: Path) -> Path:
    number = 1
    while (damaged := path.with_name(f"{path.name}.{number}.bad")).exists():
        number += 1
    return damaged


def _make_path_beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


MEMORY = "/dev/shm", "/run"
"""Folders in memory. If none of them is usable, the folder for temporary files is used."""
FREE_MIN_BYTES = 2 << 20
"""Bytes that must be free on the disk before items other than an SOS are accepted, because accepted
items need space too."""


OPEN_ATTEMPTS, OPEN_PAUSE_S = 2, 0.5
"""Number of attempts to open the journal (a disk may fail once), and the seconds between two
attempts."""


class JournalFiles:
    """Opens the files of the journal at `path`, and moves them between disk and memory. If
    `may_leave_disk`, memory is used if the disk's journal cannot be opened. Raises
    `store.trouble.Unusable` if no journal can be opened.
    """

    def __init__(self, path: Path, *, may_leave_disk: bool) -> None:
        self._home = self.path = path
        """Path of the journal on disk, and the path that is used now."""
        self._folder = path.parent
        self.not_on_disk = ""
        """Sentence with the reason why the journal is in memory. Empty while the journal is on
        disk."""
        self.may_return = True
        """True if the journal in memory contains the complete content of the disk's journal, so
        that it can replace the disk's journal. False after a failed commit, because it is then
        unknown which writes are on the disk."""
        self.may_leave = may_leave_disk
        self._others: list[sqlite3.Connection] = []
        """Writer and reader of the journal in the other place (disk or memory). Both stay open,
        because the reader may still be in use."""
        try:
            opened = _open_repeatedly(path, tries=OPEN_ATTEMPTS if may_leave_disk else 1)
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


def _open_repeatedly(path: Path, tries: int) -> OpenedJournal:
    """Open the journal, with `tries` attempts. Raises Unusable."""
    while True:
        tries -= 1
        try:
            return open_journal(path)
        except Unusable:
            if not tries:
                raise
        time.sleep(OPEN_PAUSE_S)


def _copy_files(path: Path) -> Path:
    """Copy the journal's files to memory, and return the path of the copy. Raises OSError."""
    copy = _make_folder() / path.name
    try:
        for suffix in ("", "-wal"):
            part = path.with_name(path.name + suffix)
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
