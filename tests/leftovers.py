"""Finds and ends processes that tests started and left running, by a mark in their environment."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Set
from contextlib import suppress
from pathlib import Path

MARK = "FIELDAGENT_TESTS"
"""Environment variable of the mark: the ids of the processes that run the tests, such as `12/34` if
12 has started 34."""
SPARED: set[int] = set()
"""Ids of processes that outlive a test. Their starter ends them."""
PR_SET_CHILD_SUBREAPER = 36
GRACE = 5.0
"""Seconds to wait for a process that is already ending, then after SIGTERM, and then after
SIGKILL."""


def mark() -> None:
    by = os.environ.get(MARK)
    os.environ[MARK] = f"{by}/{os.getpid()}" if by else str(os.getpid())


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants (prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(command: str) -> None:
    """Reap adopted processes of this name that have ended. A program that waits for one of them
    sees a zombie as running."""
    task = Path(f"/proc/self/task/{os.getpid()}/children")
    for pid in map(int, task.read_text().split()):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == command:
                os.waitpid(pid, os.WNOHANG)


def unmarked() -> dict[str, str]:
    """Return the environment of a process that outlives a test and ends with the session."""
    return {name: value for name, value in os.environ.items() if name != MARK}


def processes() -> set[int]:
    return {int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()}


def left(by: int, before: Set[int]) -> dict[int, str]:
    """Return the commands of processes from tests that `by` runs, except processes in `before`."""
    commands = {}
    for pid in processes() - before - SPARED - {by}:
        folder = Path(f"/proc/{pid}")
        with suppress(OSError):  # it has ended, or belongs to another user
            if by in _marked((folder / "environ").read_bytes()):
                commands[pid] = (folder / "cmdline").read_text(errors="replace").replace("\0", " ")
    return commands


def _marked(environment: bytes) -> list[int]:
    for line in environment.split(b"\0"):
        name, _, value = line.partition(b"=")
        if name == MARK.encode():
            return [int(pid) for pid in value.split(b"/")]
    return []


def end(by: int, before: Set[int] = frozenset()) -> list[str]:
    """End remaining processes. Return the commands of those that did not end by themselves within
    `GRACE`.
    """
    if _wait_until_none(by, before):
        return []
    commands = sorted(left(by, before).values())
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in left(by, before):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if _wait_until_none(by, before):
            break
    return commands


def _wait_until_none(by: int, before: Set[int]) -> bool:
    deadline = time.monotonic() + GRACE
    while left(by, before):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
