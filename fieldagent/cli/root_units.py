"""What root's units of a kit share: their folder, in which one works at a time, and what the agent
has left for them of what the hub has brought."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fieldagent.system.private import make_private_folder

OFFER_BYTES = 65_536


def make(folder: Path) -> None:
    """The agent reads in it how things ended."""
    make_private_folder(folder)
    folder.chmod(0o711)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    make(folder)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_left(offer: Path) -> bytes | None:
    """The agent's user may have put anything there: no link of theirs is followed, and nothing is
    waited for. None where there is nothing."""
    try:
        file = os.open(offer, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        return b""
    with os.fdopen(file, "rb") as stream:
        regular = stat.S_ISREG(os.fstat(file).st_mode)
        return stream.read(OFFER_BYTES) if regular else b""
