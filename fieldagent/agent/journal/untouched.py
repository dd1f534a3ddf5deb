"""Detects that a journal is unchanged since it was closed properly. Such a journal was intact then,
and its integrity check can wait until the agent listens. For a long journal the check takes half
a second, and much more on a small gateway.

A small file beside the journal describes its state at closing. It is deleted when it has been read,
so that it never vouches for later changes.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fieldagent.system.private import make_private_file


def note(path: Path) -> None:
    """Store the state of a journal that has just been closed. Without this file the journal is
    checked.
    """
    with suppress(OSError):
        make_private_file(_find_place(path))
        _find_place(path).write_text(_stamp(path))


def use_note(path: Path) -> bool:
    """Return True if the journal is unchanged since it was closed; the file is deleted."""
    place = _find_place(path)
    try:
        stamp = place.read_text(errors="replace")
        place.unlink()
        return stamp == _stamp(path)
    except OSError:
        return False


def _find_place(path: Path) -> Path:
    return path.with_name(f"{path.name}-closed")


def _stamp(path: Path) -> str:
    """Return inode, size and times of the file and its log: any program that changes them changes
    this.
    """
    files = [each.stat() for each in (path, path.with_name(f"{path.name}-wal")) if each.exists()]
    return "".join(f"{at.st_ino} {at.st_size} {at.st_mtime_ns} {at.st_ctime_ns}\n" for at in files)
