"""One agent for one state directory: a second would send what the first sends."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fieldagent.store.trouble import unusable
from fieldagent.system.directories import LOCK
from fieldagent.system.private import make_private_file, make_private_folder


class AlreadyRunning(Exception):
    """Another agent holds the state directory."""


@contextmanager
def only_one(directory: Path) -> Iterator[IO[str]]:
    path = directory / LOCK
    try:
        make_private_folder(directory)
        make_private_file(path)
        file = path.open("w")
    except OSError as error:
        raise unusable(path, error) from error
    with file as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise AlreadyRunning(
                f"another agent uses {directory}; stop it, or set state-directory"
            ) from None
        yield lock
