"""What QEMU's block filter `blklogwrites` has written down of a disk, and the states that a power
cut may leave of it.

The format is that of Linux's dm-log-writes (log-writes.rst among the kernel's manuals). An entry is
one sector of head and what was written. It is there before the board hears that its write or its
flush has ended, so that what a flush has brought to the disk stands before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from struct import Struct
from typing import NamedTuple

from tests.crash import SHARES, parts

SECTOR = 512
_HEAD = Struct("<QQQQ")
FLUSH, FUA, DISCARD = 1, 2, 4


class Entry(NamedTuple):
    end: int
    """Length of the log once it is in it."""
    offset: int
    data: bytes
    flush: bool
    """Whether all that was written before is on the disk."""
    forced: bool
    """Whether it is on the disk itself (FUA)."""


def entries(log: Path, size: int) -> Iterator[Entry]:
    """Those of the first `size` bytes."""
    with log.open("rb") as file:
        at = SECTOR
        while at + SECTOR <= size:
            file.seek(at)
            sector, count, flags, _ = _HEAD.unpack(file.read(_HEAD.size))
            assert not flags & DISCARD, "ext4 discards nothing, unless it is told to"
            file.seek(at + SECTOR)
            at += SECTOR * (1 + count)
            data = file.read(SECTOR * count)
            yield Entry(at, sector * SECTOR, data, bool(flags & FLUSH), bool(flags & FUA))


class RecordedDisk:
    """The disk at one moment of the log after the other."""

    def __init__(self, before: Path) -> None:
        self._flushed = bytearray(before.read_bytes())
        self._written: list[Entry] = []

    def take(self, entry: Entry) -> None:
        if entry.flush:
            for each in self._written:
                self._flushed[each.offset : each.offset + len(each.data)] = each.data
            self._written.clear()
        if entry.data:
            self._written.append(entry)

    def fail(self, image: Path, random: Random) -> None:
        """Write to `image` what is left once power has failed: of what was not flushed none, some
        or all, whole or in sectors or pages."""
        share = random.choice(SHARES)
        with image.open("wb") as file:
            file.write(self._flushed)
            for entry in self._written:
                torn = 0 < share < 1 and not entry.forced
                pieces = parts(entry.offset, entry.data, random) if torn else [entry[1:3]]
                for offset, data in pieces:
                    if entry.forced or random.random() < share:
                        file.seek(offset)
                        file.write(data)
