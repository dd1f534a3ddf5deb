"""Processes that tests started and did not end. Each carries a mark in its environment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Set
from contextlib import suppress
from pathlib import Path

MARK = "FIELDAGENT_TESTS"
"""Set to the id of the process that runs the tests, and inherited."""
GRACE = 5.0
"""Seconds for a process that is ending already, and for each way of ending it."""


def mark() -> None:
    os.environ[MARK] = str(os.getpid())


def unmarked() -> dict[str, str]:
    """The environment of what outlives a test, and is ended with the session."""
    return {name: value for name, value in os.environ.items() if name != MARK}


def processes() -> set[int]:
    return {int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()}


def left(by: int, before: Set[int]) -> dict[int, str]:
    """Those of the tests that `by` runs, but for those that ran before: their commands."""
    wanted = f"{MARK}={by}".encode()
    found = {}
    for pid in processes() - before - {by}:
        folder = Path(f"/proc/{pid}")
        with suppress(OSError):  # it has ended, or is another user's
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found[pid] = (folder / "cmdline").read_text(errors="replace").replace("\0", " ")
    return found


def end(by: int, before: Set[int] = frozenset()) -> list[str]:
    """End what is left: the commands of what did not end by itself within `GRACE`."""
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
