"""Allows only one agent per state directory, because a second agent would send the same items."""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from fieldagent.store.trouble import make_unusable
from fieldagent.system.directories import LOCK
from fieldagent.system.folder import make_private_file, make_private_folder

log = logging.getLogger(__name__)


class AlreadyRunning(Exception):
    """Error: another agent uses the state directory."""


@contextmanager
def hold_lock(directory: Path) -> Iterator[None]:
    """Hold the lock of the state directory inside the block. If the disk accepts no lock file,
    continue without a lock. Then the journal cannot be on the disk either, so two agents would not
    share it. Raises AlreadyRunning.
    """
    path = directory / LOCK
    with ExitStack() as locks:
        try:
            make_private_folder(directory)
            make_private_file(path)
            lock = locks.enter_context(path.open("w"))
        except OSError as error:
            log.error("%s", make_unusable(path, error))
        else:
            _acquire_lock(lock, directory)
        yield


def _acquire_lock(lock: IO[str], directory: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise AlreadyRunning(
            f"another agent uses {directory}; stop it, or set state-directory"
        ) from None
