"""What root's units of a kit share: their folder, in which one works at a time, and what the agent
has left for them of what the hub has brought."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from fieldagent.system.as_owner import as_owner
from fieldagent.system.folder import rename_file, sync_folder
from fieldagent.system.private import make_private_folder

T = TypeVar("T")
OFFER_BYTES = 131_072
"""Of a file that the agent leaves, at the most: a delta came as a Package, of 100 000 bytes."""


def make(folder: Path) -> None:
    """Make the folder, in which the agent reads how things ended."""
    make_private_folder(folder)
    folder.chmod(0o711)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Make the folder, and wait until no other unit of root's works in it; held until the end.
    Raises OSError."""
    make(folder)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_left(offer: Path) -> bytes | None:
    """Return what the agent has left there, as its user. They may have put anything there: no link
    is followed, and nothing is waited for. None where there is nothing. Raises OSError."""
    left: str | None = as_owner(offer.parent, partial(_read_left, offer))
    return None if left is None else left.encode("latin-1")


def _read_left(offer: Path) -> str | None:
    try:
        file = os.open(offer, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        return ""
    with os.fdopen(file, "rb") as stream:
        regular = stat.S_ISREG(os.fstat(file).st_mode)
        return stream.read(OFFER_BYTES).decode("latin-1") if regular else ""


def remove_left(offer: Path) -> None:
    """Remove an offer that was taken, or refused: it does not come again. Raises OSError."""
    as_owner(offer.parent, partial(_remove_left, offer))


def _remove_left(offer: Path) -> None:
    try:
        offer.unlink(missing_ok=True)
    except IsADirectoryError:
        # Out of the way of its path unit, which would start us again and again.
        offer.rename(offer.with_name(f"{offer.name}.folder-{time.time_ns()}"))
    sync_folder(offer.parent)


def read_trial(path: Path, kind: type[T]) -> T:
    """Return what is on trial by that file. One that cannot be read is set aside, so that it stands
    in nobody's way: what is in place stays. Raises OSError."""
    try:
        return kind(**json.loads(path.read_bytes()))
    except (ValueError, TypeError):
        aside = path.with_name(f"{path.name}.unreadable")
        rename_file(path, aside)
        raise OSError(
            f"{path} cannot be read: it is kept as {aside.name}, and nothing is tried"
        ) from None
