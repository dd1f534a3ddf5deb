"""Backup copies of an SQLite database, and detection of a restored or a lost database.

SQLite treats any log next to a database file as the log of that file. If a copy replaces a database
and the old log stays, SQLite replays that log into the copy. Old content then reappears, in full or
in part, and the file is damaged. So a copy is not in WAL mode: its header has no log (bytes 18
and 19, https://sqlite.org/fileformat2.html#the_database_header). A database of the hub is always in
WAL mode. A log next to a copy therefore belongs to another database.

SQLite treats a file of 0 bytes or 1 byte as a new database, and removes the log next to it. A
database of the hub has its first page before it has a log. If there is a log but no content, the
database was lost.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from fieldagent.store.group import StoreFailed
from fieldagent.store.sqlite import copy_whole
from fieldagent.system.folder import sync_folder

log = logging.getLogger(__name__)

_HEAD = 20
_WITHOUT_LOG = b"\x01\x01"
_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510
"""Bytes that each program locks while it has the database open
(https://sqlite.org/lockingv3.html)."""


def back_up(
    source: sqlite3.Connection, target: Path, report: Callable[[int, int], None] | None = None
) -> None:
    """Write a copy of the database as of one moment. The hub may write at the same time. The copy
    gets the name `target` only when it is complete on disk. `report` is passed to `copy_whole`.
    Raises OSError, sqlite3.Error.
    """
    new = target.parent / f"{target.name}.new"
    try:
        copy_whole(source, new, report)
        with closing(sqlite3.connect(new)) as copy:
            copy.execute("PRAGMA journal_mode=DELETE").fetchall()
        os.link(new, target)  # Unlike a rename, a link does not replace an existing file.
    finally:
        new.unlink(missing_ok=True)
    sync_folder(target.parent)


def refuse_lost_database(file: Path) -> None:
    """Raise StoreFailed if there was a database at `file` that is now empty or missing. Raises
    OSError.
    """
    # Check for the log first, because another program may be creating both files at this moment.
    left_files = [
        each for each in map(partial(_make_path_beside, file), ("-wal", "-shm")) if each.exists()
    ]
    size = file.stat().st_size if file.exists() else 0
    if size > 1 or file.is_dir():
        return
    state = "is empty" if file.exists() else "is gone"
    if left_files:
        names = " and ".join(map(str, left_files))
        raise StoreFailed(
            f"the database {file} {state}, but its other files are still there: put a backup in"
            f" its place; to begin a new one, remove {names}"
        )
    if size:
        raise StoreFailed(
            f"the database {file} is damaged: one byte of it is left; put a backup in its place"
        )
    if file.exists():
        log.warning(
            "%s is empty: a new hub starts in it, without kits and users. If it held a database"
            " before, stop this program, and put a backup in its place",
            file,
        )


def set_aside_log_of_another(file: Path) -> None:
    """If the log next to a restored copy belongs to the previous database, rename the log. Raises
    OSError.
    """
    left_log = _make_path_beside(file, "-wal")
    if not _has_content(left_log):
        return
    with file.open("r+b") as database_file:
        try:
            fcntl.lockf(database_file, fcntl.LOCK_EX | fcntl.LOCK_NB, _SHARED_SIZE, _SHARED_FIRST)
        except BlockingIOError:
            return  # The program that has the file open has already checked.
        # Check again while the lock is held, because another program may have renamed the old log
        # meanwhile and begun a new log for this file.
        if not _has_content(left_log) or database_file.read(_HEAD)[18:] != _WITHOUT_LOG:
            return
        kept_log = left_log.with_name(f"{left_log.name}.before")
        left_log.rename(kept_log)
        _make_path_beside(file, "-shm").unlink(missing_ok=True)
        sync_folder(file.parent)
    log.warning(
        "%s is a restored copy; the log beside it belongs to the database before it, and is now"
        " named %s: remove it",
        *(file, kept_log),
    )


def _make_path_beside(file: Path, suffix: str) -> Path:
    return file.with_name(file.name + suffix)


def _has_content(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:
        return False
