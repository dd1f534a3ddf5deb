"""What a disk may hold when power fails: every state that a record of calls allows.

What was synced is there. Of what was not, each write is there, or is not, or only some of its
sectors are; what was removed may be back. New files and names are there: ext4 and its like bring
them to the disk in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.disk import Call

SECTOR = 512
PAGE = 4096
EDGE = 60
"""Calls by which a program has made its files, or those by which it ends."""


@dataclass
class _File:
    synced: bytearray = field(default_factory=bytearray)
    unsynced: list[Call] = field(default_factory=list)

    def sync(self) -> None:
        for call in self.unsynced:
            change(self.synced, call)
        self.unsynced.clear()


def change(content: bytearray, call: Call) -> None:
    end = call.offset + len(call.data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if call.name == "truncate":
        del content[call.offset :]
    else:
        content[call.offset : end] = call.data


class Disk:
    """The files of one process, which found those of `before`. With `lies`, a sync brings nothing
    to the disk."""

    def __init__(self, before: Mapping[str, bytes], *, lies: bool = False) -> None:
        self._lies = lies
        self._files = {path: _File(bytearray(content)) for path, content in before.items()}
        self._removed: dict[str, _File] = {}

    def take(self, call: Call) -> None:
        match call.name:
            case "make":
                self._removed.pop(call.path, None)
                self._files[call.path] = _File()
            case "write" | "truncate":
                self._files[call.path].unsynced.append(call)
            case "sync" if not self._lies:
                if call.path in self._files:
                    self._files[call.path].sync()
                else:  # a folder
                    self._removed.clear()
            case "unlink":
                self._removed[call.path] = self._files.pop(call.path)
            case "rename":
                self._files[call.data.decode()] = self._files.pop(call.path)

    def fail(self, folder: Path, random: Random) -> None:
        """Write to `folder` what is left once power has failed."""
        share = random.choice([0.0, 0.5, 0.9, 1.0])
        back = {path: file for path, file in self._removed.items() if random.random() < 0.5}
        for path, file in (self._files | back).items():
            content = bytearray(file.synced)
            for call in file.unsynced:
                for part in _parts(call, random) if share in (0.5, 0.9) else [call]:
                    if random.random() < share:
                        change(content, part)
            (folder / Path(path).name).write_bytes(content)


def _parts(call: Call, random: Random) -> Iterator[Call]:
    """Sectors, or pages, that come to the disk one by one."""
    if call.name != "write":
        yield call
        return
    size = random.choice([SECTOR, PAGE])
    at = 0
    while at < len(call.data):
        length = size - (call.offset + at) % size
        yield call._replace(offset=call.offset + at, data=call.data[at : at + length])
        at += length


def failures(disk: Disk, calls: Iterable[Call], moments: int, random: Random) -> Iterator[bytes]:
    """Take `disk` to so many moments, a third of them in the start and the end of the program; what
    had been answered by each."""
    listed = list(calls)
    whole = range(1, len(listed) + 1)
    edges = [*whole[:EDGE], *whole[-EDGE:]]
    anywhere = random.choices(whole, k=moments - moments // 3)
    chosen = sorted(anywhere + random.choices(edges, k=moments // 3))
    answered, at = bytearray(), 0
    for moment in chosen:
        for call in listed[at:moment]:
            if call.name == "answer":
                answered += call.data
            else:
                disk.take(call)
        at = moment
        yield bytes(answered)
