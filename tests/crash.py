"""Possible states of a disk after a power cut, computed from recorded calls.

Synced data is on the disk. Each write that was not synced is on the disk, missing, or on the disk
with only some of its sectors. Removed files may exist again. New files and names exist, because
ext4 and similar file systems write them in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.disk import Call

SECTOR = 512
PAGE = 4096
SHARES = [0.0, 0.5, 0.9, 1.0]
"""Shares of unsynced writes that reach the disk, from which one is drawn."""
EDGE = 60
"""Number of calls that count as the start of a program, when it makes its files, or as its end."""


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
    """The files of one process on a simulated disk. They are at first those of `before`. If `lies`
    is True, a sync has no effect.
    """

    def __init__(self, before: Mapping[str, bytes], *, lies: bool = False) -> None:
        self._lies = lies
        self._files = {path: _File(bytearray(content)) for path, content in before.items()}
        self._removed: dict[str, _File] = {}

    def receive_message(self, call: Call) -> None:
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
        """Write the files that remain after a power cut to `folder`."""
        share = random.choice(SHARES)
        back = {path: file for path, file in self._removed.items() if random.random() < 0.5}
        for path, file in (self._files | back).items():
            content = bytearray(file.synced)
            for call in file.unsynced:
                torn = 0 < share < 1 and call.name == "write"
                pieces = parts(call.offset, call.data, random) if torn else [call[2:]]
                for offset, data in pieces:
                    if random.random() < share:
                        change(content, call._replace(offset=offset, data=data))
            (folder / Path(path).name).write_bytes(content)


def parts(offset: int, data: bytes, random: Random) -> Iterator[tuple[int, bytes]]:
    """Yield the parts of a write (offset and data): sectors or pages, which reach the disk
    separately.
    """
    size = random.choice([SECTOR, PAGE])
    at = 0
    while at < len(data):
        length = size - (offset + at) % size
        yield offset + at, data[at : at + length]
        at += length


def failures(disk: Disk, calls: Iterable[Call], moments: int, random: Random) -> Iterator[bytes]:
    """Advance `disk` to `moments` moments in turn, a third of them near the start or the end of the
    program. Yield the answers that the program had given before each moment.
    """
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
                disk.receive_message(call)
        at = moment
        yield bytes(answered)
