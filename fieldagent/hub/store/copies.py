"""Copies of an SQLite database, one that was put back in its place, and one that was lost.

SQLite takes whatever log it finds beside a file for that file's own. Where a copy is put back and
the log of the database that was there before stays, it plays that log into the copy: what came is
there again, or half of it, and the file is damaged. So a copy does not say of itself that it has a
log (bytes 18 and 19 of the head, https://sqlite.org/fileformat2.html#the_database_header), as a
database of ours always does: a log beside it is another's.

A file without a byte, or with one, is a new database to SQLite, which removes the log beside it. A
database of ours has its first page before it has a log: where a log is beside nothing, it was lost.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
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
"""Bytes that whoever has it open keeps a lock on (https://sqlite.org/lockingv3.html)."""


def back_up(source: sqlite3.Connection, target: Path) -> None:
    """Make a copy as of one moment, whole on its disk before it has that name, also while a hub
    writes. Raises OSError, sqlite3.Error."""
    new = target.parent / f"{target.name}.new"
    try:
        copy_whole(source, new)
        with closing(sqlite3.connect(new)) as copy:
            copy.execute("PRAGMA journal_mode=DELETE").fetchall()
        os.link(new, target)  # unlike a rename, it replaces nothing
    finally:
        new.unlink(missing_ok=True)
    sync_folder(target.parent)


def see_that_none_was_lost(file: Path) -> None:
    """Raise StoreFailed where a database was at `file`, and is empty or gone. Raises OSError."""
    # The log first: another program may make both at this moment.
    left = [each for each in map(partial(_beside, file), ("-wal", "-shm")) if each.exists()]
    size = file.stat().st_size if file.exists() else 0
    if size > 1 or file.is_dir():
        return
    what = "is empty" if file.exists() else "is gone"
    if left:
        names = " and ".join(map(str, left))
        raise StoreFailed(
            f"the database {file} {what}, and what belonged to it is still there: put a backup in"
            f" its place; to begin a new one, remove {names}"
        )
    if size:
        raise StoreFailed(
            f"the database {file} is damaged: one byte of it is left; put a backup in its place"
        )
    if file.exists():
        log.warning(
            "%s is empty: a new hub begins in it, which knows no kit and no user. If there was one"
            " before, stop this, and put a backup in its place",
            file,
        )


def set_aside_log_of_another(file: Path) -> None:
    """Rename a log that is of the database from before, where a copy was put back. Raises
    OSError."""
    left = _beside(file, "-wal")
    if not _has_content(left):
        return
    with file.open("r+b") as opened:
        try:
            fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB, _SHARED_SIZE, _SHARED_FIRST)
        except BlockingIOError:
            return  # whoever has it open has looked
        # Another may have been here meanwhile, and have begun a log of this file's own.
        if not _has_content(left) or opened.read(_HEAD)[18:] != _WITHOUT_LOG:
            return
        kept = left.with_name(f"{left.name}.before")
        left.rename(kept)
        _beside(file, "-shm").unlink(missing_ok=True)
        sync_folder(file.parent)
    log.warning(
        "%s is a copy that was put back; the log beside it is of the database that was there before"
        " it, and is %s now: remove it",
        *(file, kept),
    )


def _beside(file: Path, suffix: str) -> Path:
    return file.with_name(file.name + suffix)


def _has_content(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:
        return False
