"""Environments for processes whose disk calls fail, have no effect, are slow or are recorded, by a
preloaded library (`peers/disk.c`).
"""

from __future__ import annotations

import errno
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from tests.machine import tool

SOURCE = Path(__file__).parent / "peers/disk.c"
NAMES = {
    "w": "write",
    "s": "sync",
    "t": "truncate",
    "u": "unlink",
    "r": "rename",
    "m": "make",
    "a": "answer",
}


def build(folder: Path) -> Path:
    """Build the library to preload, and return its path."""
    gcc = tool("gcc", "gcc libc6-dev")
    library = folder / "disk.so"
    strict = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]
    subprocess.run([gcc, *strict, "-fPIC", "-shared", SOURCE, "-o", library, "-ldl"], check=True)
    return library


class Fault(NamedTuple):
    """Failing calls: `times` calls named `call` (or of `any` name) fail, beginning with number
    `first`. `times` 0 means all.
    """

    call: str
    first: int
    number: int = errno.EIO
    times: int = 1

    def __str__(self) -> str:
        often = {0: "-for-good", 1: ""}.get(self.times, f"-{self.times}-times")
        return f"{self.call}-{self.first}-{errno.errorcode[self.number]}{often}"


def faulty(library: Path, folder: Path, fault: Fault) -> dict[str, str]:
    """Return the environment of a process whose calls on files in `folder` fail. `has_failed` shows
    if a call has failed.
    """
    listed = f"{fault.call},{fault.first},{fault.times},{fault.number}"
    mark = str(_mark(folder))
    return _preloaded(library, folder) | {"DISK_FAULT": listed, "DISK_FAILED": mark}


def has_failed(folder: Path) -> bool:
    return _mark(folder).exists()


def _mark(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-has-failed")


def lying(library: Path, folder: Path) -> dict[str, str]:
    """Return the environment of a process whose syncs have no effect but report success."""
    return _preloaded(library, folder) | {"DISK_FAULT": "sync,1,0,0"}


def slow(library: Path, folder: Path, seconds: float) -> dict[str, str]:
    """Return the environment of a process whose syncs take that many seconds. If `folder` is in
    memory, other calls are fast.
    """
    return _preloaded(library, folder) | {"DISK_SYNC_TAKES": f"{seconds * 1e6:.0f}"}


def recorded(library: Path, folder: Path, record: Path) -> dict[str, str]:
    """Return the environment of a process whose calls are written to `record`."""
    return _preloaded(library, folder) | {"DISK_RECORD": str(record)}


def _preloaded(library: Path, folder: Path) -> dict[str, str]:
    return {"LD_PRELOAD": str(library), "DISK_FOLDER": str(folder)}


class Call(NamedTuple):
    name: str
    path: str
    offset: int
    """Offset of a write, or the size of a truncated file."""
    data: bytes
    """Written or answered data, or the new name of a renamed file."""


_HEAD = Struct("=cIIq")


def calls(record: Path) -> Iterator[Call]:
    """Yield the calls in the order in which they ended."""
    content = record.read_bytes()
    at = 0
    while at < len(content):
        letter, path_size, size, offset = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        path = content[at : at + path_size].decode()
        at += path_size
        yield Call(NAMES[letter.decode()], path, offset, content[at : at + size])
        at += size


def counts(record: Path) -> Counter[str]:
    """Return the number of calls of each kind that can fail."""
    return Counter(call.name for call in calls(record) if call.name != "answer")


def fail_in_turn(
    home: Path, counted: Counter[str], number: int, survive: Callable[[Path, Fault], bool]
) -> None:
    """Make each call fail once, and at some calls let the disk fail permanently. `survive` gets an
    empty folder and returns True if the fault occurred.
    """
    faults = [
        *(Fault(call, n + 1, number) for call, count in counted.items() for n in range(count)),
        *(Fault("any", first, number, times=0) for first in range(1, counted.total(), 8)),
    ]
    came, broken = 0, []
    for fault in faults:
        place = home / str(fault)
        place.mkdir()
        try:
            came += survive(place, fault)
        except AssertionError as error:
            broken.append(f"{fault}: {error}")
            print(broken[-1])
        # A hook that its ended agent has left alone may still write into the folder.
        shutil.rmtree(place, ignore_errors=True)
        print(f"{fault}: {came} have come", flush=True)
    print(f"{came} of {len(faults)} faults came, of {dict(counted)}; {len(broken)} broke it")
    assert not broken
    assert came >= 0.8 * len(faults)
