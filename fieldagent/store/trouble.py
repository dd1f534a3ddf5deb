"""Why a database file cannot be used, in words that say what to do. Only damage is damage.

A full disk, a read error, a lock, a missing right or a later version say nothing against the file:
it is left as it is. SQLITE_CORRUPT and SQLITE_NOTADB alone do, and what its own check finds
(https://sqlite.org/rescode.html, PRAGMA quick_check).
"""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from fieldagent.store.schema import WrongVersion

FULL_BYTES = 64 << 10
"""Less than that free is full: a log's index takes 32 KiB."""


class Unusable(Exception):
    """The text is for people. The file was not changed."""


class OfOtherVersion(Unusable):
    """Another version of the program has written it."""


def is_damage(error: BaseException) -> bool:
    """Return whether an error, SQLite's or our own check's, says that the file is damaged; another
    version, a full disk or a lock do not."""
    if isinstance(error, WrongVersion) or not isinstance(error, sqlite3.DatabaseError):
        return False
    code = getattr(error, "sqlite_errorcode", None)
    # Without a code it is what the file's own check has found.
    return code is None or code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def unusable(path: Path, error: sqlite3.Error | OSError) -> Unusable:
    """Return what people are told of an error that is no damage."""
    if isinstance(error, WrongVersion):
        return OfOtherVersion(error.of(str(path)))
    what, remedy = _reason(path, error)
    return Unusable(f"{path} cannot be used: {what}; it is left as it is. {remedy}")


def is_full(folder: Path) -> bool:
    """Return whether its disk has no room for what SQLite needs to begin."""
    with suppress(OSError):
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize < FULL_BYTES
    return False


_FULL = ("the disk is full", "Make room on it, then start again")
_DISK = (
    "the disk does not read or write it",
    "Look into the system's log for what the disk says, and copy the file away before all else",
)
_LOCKED = ("another program holds it", "End that program, then start again")


def _reason(path: Path, error: sqlite3.Error | OSError) -> tuple[str, str]:
    """Return what is wrong, and what to do."""
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _FULL
        if error.errno == errno.EIO:
            return _DISK
        return _place(path, os.strerror(error.errno or 0).lower())
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return _FULL
    if code == sqlite3.SQLITE_IOERR:
        # SQLite says the same of a disk that has no room for its log's index.
        return _FULL if is_full(path.parent) else _DISK
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return _LOCKED
    return _place(path, str(error))


def _place(path: Path, what: str) -> tuple[str, str]:
    """Something about where it is, or whose."""
    if path.is_dir():
        return "it is a folder", "Move it away, or name another place"
    folder = path.parent
    statistics = os.statvfs(folder) if folder.is_dir() else None
    if statistics is not None and statistics.f_files and not statistics.f_favail:
        return "the disk has no place for another file (no inodes)", _FULL[1]
    if statistics is not None and statistics.f_flag & os.ST_RDONLY:
        return "the disk is mounted for reading only", "Mount it for writing, then start again"
    me = os.geteuid()
    for place in (path, folder):
        if place.exists() and place.stat().st_uid != me != 0:
            owner = place.stat().st_uid
            return (
                f"{place} belongs to user {owner}, and this program runs as user {me}: {what}",
                "Run it as that user, or give the file to this one (chown)",
            )
    return what, (
        "See that this program may write the file and the folder around it (ls -l, lsattr)"
    )
