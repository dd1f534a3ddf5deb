"""Where a program keeps its settings and its state."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path


def xdg_directory(environ: Mapping[str, str], variable: str, fallback: str) -> Path:
    """Return a folder of ours by the XDG Base Directory Specification, which ignores a relative
    path."""
    root = environ.get(variable, "")
    base = Path(root) if root.startswith("/") else Path.home() / fallback
    return base / "fieldagent"


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return what systemd made for us, or `$XDG_STATE_HOME/fieldagent`."""
    if folders := environ.get("STATE_DIRECTORY"):
        return Path(folders.split(":")[0])
    return xdg_directory(environ, "XDG_STATE_HOME", ".local/state")


LOCK = "agent.lock"
"""In the state directory: held for as long as an agent uses that."""


def is_held(directory: Path) -> bool | None:
    """Return whether an agent uses this state directory; None where this user may not know."""
    try:
        # Of a FIFO in its place, nobody waits for the other end.
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
