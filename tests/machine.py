"""Requirements of tests on the machine: programs, mounts, disks. A test without them is skipped or
fails.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

BUILT = "FIELDAGENT_TESTS_BUILT"
"""If this variable is set, `dist/fieldagent.pyz` was built from this tree. `tests/run` sets it."""
COMPLETE = "FIELDAGENT_TESTS_COMPLETE"
"""If this variable or `CI` is set, a test without its program fails. `full` and `soak` set it."""


NPM = Path(sys.prefix, "npm/node_modules")
"""Folder in which `tests/run` installs the packages of build/npm-packages for `full`, `soak` and
`ci`."""


def is_complete() -> bool:
    """Return True if a missing program fails a test instead of skipping it."""
    return bool(os.environ.get("CI") or os.environ.get(COMPLETE))


def needs(program: object, how: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test without its program. In a complete run the test fails."""
    return pytest.mark.skipif(not program and not is_complete(), reason=how)


def unavailable(why: str) -> NoReturn:
    """Skip the test, or fail it in a run that must be complete."""
    if is_complete():
        pytest.fail(why)
    pytest.skip(why)


def tool(name: str, package: str) -> str:
    """Return the path of a program of a Debian package. Skip or fail the test if it is missing."""
    return shutil.which(name) or unavailable(f"no {name}: apt-get install {package}")


@contextmanager
def mounted(place: Path, *what: str | Path) -> Iterator[Path]:
    """Mount a separate file system at `place` with these arguments of mount(8)."""
    if os.geteuid() != 0:
        unavailable("only root may mount a file system")
    place.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *what, place], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """Mount a disk of 64 MiB."""
    with mounted(place, "-t", "tmpfs", "-o", "size=64m,mode=0755", "tmpfs"):
        yield place


def fill(disk: Path, leave: int = 0) -> Path:
    """Fill the disk except for `leave` bytes."""
    logs = disk / "logs"
    with logs.open("ab") as file:
        while True:
            statistics = os.statvfs(disk)
            room = statistics.f_bavail * statistics.f_frsize - leave
            try:
                os.posix_fallocate(file.fileno(), file.tell(), room)
            except OSError as error:
                # An agent that has just started uses some of the space at this moment.
                if error.errno != errno.ENOSPC:
                    raise
            else:
                return logs
