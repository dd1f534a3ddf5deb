"""What QEMU's block filter `blklogwrites` has written down of a disk, and the states that a power
cut may leave of it.

The format is that of Linux's dm-log-writes (log-writes.rst among the kernel's manuals). An entry is
one sector of head and what was written. It is there before the board hears that its write or its
flush has ended, so that what a flush has brought to the disk stands before it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from struct import Struct
from typing import IO, NamedTuple

from tests.crash import SHARES, parts
from tests.shipping.card import Partition, cut_out

SECTOR = 512
_HEAD = Struct("<QQQQ")
FLUSH, FUA, DISCARD = 1, 2, 4
SUPERBLOCK = (1024, 1536)
"""Where the two sectors of ext4's begin, in its partition. They come together, as flash writes
pages of 4 KiB at least: ext4 counts on it, and `e2fsck -p` tries no copy of a torn one."""


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


def left_of(
    card: Path,
    log: Path,
    partitions: list[Partition],
    moments: list[int],
    folder: Path,
    random: Random,
) -> Iterator[list[Path]]:
    """Files in `folder` with what a power cut at each of these lengths of the log leaves of these
    partitions, which were as on `card` before. What is nowhere written on takes no place."""
    flushed = [cut_out(card, each, folder / f"{each.start}.flushed") for each in partitions]
    left = [each.with_suffix(".left") for each in flushed]
    waiting: list[list[Entry]] = [[] for _ in partitions]
    log_entries = entries(log, log.stat().st_size)
    entry = next(log_entries, None)
    for moment in moments:
        while entry and entry.end <= moment:
            for index, partition in enumerate(partitions):
                if entry.flush:
                    with flushed[index].open("r+b") as disk:
                        _write(disk, ((each.offset, each.data) for each in waiting[index]))
                    waiting[index].clear()
                at = entry.offset - partition.start
                if entry.data and 0 <= at < partition.size:
                    waiting[index].append(entry._replace(offset=at))
            entry = next(log_entries, None)
        for index, image in enumerate(left):
            _copy(flushed[index], image)
            with image.open("r+b") as disk:
                _write(disk, _come(waiting[index], random))
        yield left


def _copy(image: Path, target: Path) -> None:
    subprocess.run(["cp", "--sparse=always", "--reflink=auto", image, target], check=True)


def _write(disk: IO[bytes], pieces: Iterable[tuple[int, bytes]]) -> None:
    for offset, data in pieces:
        disk.seek(offset)
        disk.write(data)


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
        with image.open("wb") as file:
            file.write(self._flushed)
            _write(file, _come(self._written, random))


def _come(written: Iterable[Entry], random: Random) -> Iterator[tuple[int, bytes]]:
    """What of it has come to the disk, unflushed as it is."""
    share = random.choice(SHARES)
    for entry in written:
        torn = 0 < share < 1 and not entry.forced
        pieces = parts(entry.offset, entry.data, random) if torn else [entry[1:3]]
        superblock = random.random() < share
        for offset, data in pieces:
            comes = superblock if offset in SUPERBLOCK else random.random() < share
            if entry.forced or comes:
                yield offset, data
