"""What tests need of the machine beside Python."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest


def lacking(why: str) -> NoReturn:
    """What a test needs is not here: its author may go on, CI may not."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


def tool(name: str, package: str) -> str:
    """The path of a program that a package of Debian's brings."""
    return shutil.which(name) or lacking(f"no {name}: apt-get install {package}")


@contextmanager
def mounted(place: Path, *what: str | Path) -> Iterator[Path]:
    """`place` with a file system of its own, by these arguments of mount(8)."""
    if os.geteuid() != 0:
        lacking("only root may mount a file system")
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
    """64 MiB."""
    with mounted(place, "-t", "tmpfs", "-o", "size=64m,mode=0755", "tmpfs"):
        yield place


def fill(disk: Path, leave: int = 0) -> Path:
    """Others leave so many bytes free."""
    logs = disk / "logs"
    with logs.open("ab") as file:
        while True:
            statistics = os.statvfs(disk)
            room = statistics.f_bavail * statistics.f_frsize - leave
            try:
                os.posix_fallocate(file.fileno(), file.tell(), room)
            except OSError as error:
                # An agent that has just started takes some of it at this very moment.
                if error.errno != errno.ENOSPC:
                    raise
            else:
                return logs
