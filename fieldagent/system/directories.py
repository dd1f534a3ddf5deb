"""Folders for a program's settings and state."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path


def find_xdg_directory(environ: Mapping[str, str], variable: str, default: str) -> Path:
    """Return the folder `fieldagent` in the directory that the environment variable `variable`
    names (XDG Base Directory Specification). If the variable is missing or its path is relative,
    use the directory `default` in the user's home.
    """
    root = environ.get(variable, "")
    base = Path(root) if root.startswith("/") else Path.home() / default
    return base / "fieldagent"


def find_state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the state directory that systemd has made for this program. If there is none, return
    `$XDG_STATE_HOME/fieldagent`.
    """
    if folders := environ.get("STATE_DIRECTORY"):
        return Path(folders.split(":")[0])
    return find_xdg_directory(environ, "XDG_STATE_HOME", ".local/state")


LOCK = "agent.lock"
"""Lock file in the state directory, which a running agent holds."""


def is_held(directory: Path) -> bool | None:
    """Return True if an agent uses this state directory, or None if this user may not read the
    lock.
    """
    try:
        # Do not block if a FIFO has this name.
        lock = os.open(directory / LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        finally:
            os.close(lock)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return False
