"""Common functions of a kit's systemd units that run as root. Only one unit at a time uses their
folder. The agent writes files for them.
"""

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

from fieldagent.system.as_owner import run_as_owner
from fieldagent.system.folder import make_private_folder, rename_file, sync_folder

T = TypeVar("T")
OFFER_FILE_BYTES_MAX = 131_072
"""Maximum bytes of a file from the agent. A delta arrives as a Package of at most 100 000 bytes."""


def make_folder(folder: Path) -> None:
    """Make the folder of the root units. The agent can read it, because it contains the results."""
    make_private_folder(folder)
    folder.chmod(0o711)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Make the folder, and wait until no other root unit uses it. The lock is held inside the
    block. Raises OSError.
    """
    make_folder(folder)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_offer(offer: Path) -> bytes | None:
    """Return the content of the file that the agent has written for a root unit, read as the
    agent's user, or None if there is no such file. Links are not followed, and reading never
    blocks, because the agent's user may have put any kind of file in its place. Raises OSError.
    """
    offer_text: str | None = run_as_owner(offer.parent, partial(_read_file, offer))
    return None if offer_text is None else offer_text.encode("latin-1")


def _read_file(offer: Path) -> str | None:
    try:
        file = os.open(offer, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        return ""
    if not stat.S_ISREG(os.fstat(file).st_mode):
        # Return for a folder, which `os.open` accepts, because `os.fdopen` would raise
        # IsADirectoryError.
        os.close(file)
        return ""
    with os.fdopen(file, "rb") as stream:
        return stream.read(OFFER_FILE_BYTES_MAX).decode("latin-1")


def remove_offer(offer: Path) -> None:
    """Remove a processed offer, so that it is not processed again. Raises OSError."""
    run_as_owner(offer.parent, partial(_remove_file, offer))


def _remove_file(offer: Path) -> None:
    try:
        offer.unlink(missing_ok=True)
    except IsADirectoryError:
        # A folder with that name would trigger the path unit again and again: rename it.
        offer.rename(offer.with_name(f"{offer.name}.folder-{time.time_ns()}"))
    sync_folder(offer.parent)


def read_trial(path: Path, kind: type[T]) -> T:
    """Return the trial in the file `path`. An unreadable file is renamed, so that it does not block
    later trials. The current program and settings are kept. Raises OSError.
    """
    try:
        return kind(**json.loads(path.read_bytes()))
    except (ValueError, TypeError):
        aside = path.with_name(f"{path.name}.unreadable")
        rename_file(path, aside)
        raise OSError(f"{path} cannot be read: it is kept as {aside.name}, and not tried") from None
