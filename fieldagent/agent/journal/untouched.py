"""Detects that a journal is unchanged since it was closed properly. Such a journal was intact when
it was closed, so its integrity check can wait until the agent has started. For a long journal, the
check takes half a second on a PC, and much longer on a small gateway.

A small file beside the journal describes the journal's state when it was closed. The file is
deleted when it is read, so that it never describes a later state.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fieldagent.system.private import make_private_file


def record_closed_state(path: Path) -> None:
    """Store the state of a journal that has just been closed. If this file is missing, the journal
    is checked at the next start.
    """
    with suppress(OSError):
        make_private_file(_find_place(path))
        _find_place(path).write_text(_stamp(path))


def consume_closed_state(path: Path) -> bool:
    """Return True if the journal is unchanged since it was closed properly, and delete the file
    with its state.
    """
    state_path = _find_place(path)
    try:
        stamp = state_path.read_text(errors="replace")
        state_path.unlink()
        return stamp == _stamp(path)
    except OSError:
        return False


def _find_place(path: Path) -> Path:
    return path.with_name(f"{path.name}-closed")


def _stamp(path: Path) -> str:
    """Return the inode, size and times of the file and its log. Any write to these files changes
    this text.
    """
    files = [each.stat() for each in (path, path.with_name(f"{path.name}-wal")) if each.exists()]
    return "".join(f"{at.st_ino} {at.st_size} {at.st_mtime_ns} {at.st_ctime_ns}\n" for at in files)
