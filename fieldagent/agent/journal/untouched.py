"""Whether a journal is as it was left. One that nobody has touched since it was closed in good
order was whole then, and need not be looked through before the agent listens: a long one takes half
a second, and much more on a small gateway.

A small file beside it tells how it was left. It goes once that was read, so that it never speaks
for what came after it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fieldagent.system.private import make_private_file


def note(path: Path) -> None:
    """Note how a journal that has just been closed was left. Without a note it is looked
    through."""
    with suppress(OSError):
        make_private_file(_place(path))
        _place(path).write_text(_stamp(path))


def use_note(path: Path) -> bool:
    """Return whether it is as it was left; the note is gone then."""
    place = _place(path)
    try:
        stamp = place.read_text(errors="replace")
        place.unlink()
        return stamp == _stamp(path)
    except OSError:
        return False


def _place(path: Path) -> Path:
    return path.with_name(f"{path.name}-closed")


def _stamp(path: Path) -> str:
    """Of file and log: nobody but the disk itself changes their content without this."""
    files = [each.stat() for each in (path, path.with_name(f"{path.name}-wal")) if each.exists()]
    return "".join(f"{at.st_ino} {at.st_size} {at.st_mtime_ns} {at.st_ctime_ns}\n" for at in files)
