"""Describes why a database file cannot be used, and how to fix this. Also distinguishes damage from
other errors.

A full disk, a read error, a lock, a missing permission or a later version do not mean that the file
is damaged. In these cases, the file stays unchanged. Only SQLITE_CORRUPT, SQLITE_NOTADB and the
file's own check mean damage (https://sqlite.org/rescode.html, PRAGMA quick_check).
"""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from fieldagent.store.schema import WrongVersion

FULL_BYTES = 64 << 10
"""Free bytes below which a disk counts as full. The index of SQLite's write-ahead log needs 32
KiB."""


class Unusable(Exception):
    """Error: the file cannot be used and was not changed. The message is for people."""


class WrittenByOtherVersion(Unusable):
    """Error: another version of the program has written the file."""


def is_damage(error: BaseException) -> bool:
    """Return True if an error, of SQLite or of our own check, means that the file is damaged.
    Another version, a full disk or a lock is not damage.
    """
    if isinstance(error, WrongVersion) or not isinstance(error, sqlite3.DatabaseError):
        return False
    code = getattr(error, "sqlite_errorcode", None)
    # An error without a code comes from our own check of the file, which reports only damage.
    return code is None or code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def make_unusable(path: Path, error: sqlite3.Error | OSError) -> Unusable:
    """Convert an error that is not damage into an error with a text for people."""
    if isinstance(error, WrongVersion):
        return WrittenByOtherVersion(error.describe_for(str(path)))
    description, remedy = _describe_reason(path, error)
    return Unusable(f"{path} cannot be used: {description}; it is not changed. {remedy}")


def is_full(folder: Path) -> bool:
    """Return True if the disk of the folder has no space for the files that SQLite needs."""
    with suppress(OSError):
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize < FULL_BYTES
    return False


_DISK_FULL = ("the disk is full", "Free space on it, then start again")
_DISK = (
    "the disk does not read or write it",
    "First copy the file to another disk, then check the system's log for disk errors",
)
_LOCKED_REASON = ("another program has locked it", "End that program, then start again")


def _describe_reason(path: Path, error: sqlite3.Error | OSError) -> tuple[str, str]:
    """Return the problem and its fix, as two texts for people, for an error of a database file."""
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _DISK_FULL
        if error.errno == errno.EIO:
            return _DISK
        return _describe_place(path, os.strerror(error.errno or 0).lower())
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return _DISK_FULL
    if code == sqlite3.SQLITE_IOERR:
        # SQLite reports the same error if the disk has no space for the log's index.
        return _DISK_FULL if is_full(path.parent) else _DISK
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return _LOCKED_REASON
    return _describe_place(path, str(error))


def _describe_place(path: Path, file_name: str) -> tuple[str, str]:
    """Return a problem with the file's place or owner, and the fix."""
    if path.is_dir():
        return "it is a folder", "Move it away, or name another place"
    folder = path.parent
    statistics = os.statvfs(folder) if folder.is_dir() else None
    if statistics is not None and statistics.f_files and not statistics.f_favail:
        return "the disk has no space for another file (no inodes)", _DISK_FULL[1]
    if statistics is not None and statistics.f_flag & os.ST_RDONLY:
        return "the disk is mounted for reading only", "Mount it for writing, then start again"
    me = os.geteuid()
    for checked_path in (path, folder):
        if checked_path.exists() and checked_path.stat().st_uid != me != 0:
            owner = checked_path.stat().st_uid
            return (
                f"{checked_path} belongs to user {owner}, and this program runs as user {me}:"
                f" {file_name}",
                "Run it as that user, or give the file to this one (chown)",
            )
    return file_name, (
        "See that this program may write the file and the folder around it (ls -l, lsattr)"
    )
