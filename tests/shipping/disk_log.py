"""Reads a disk log of QEMU's block filter `blklogwrites`, and computes states after a power cut.

The format is that of Linux's dm-log-writes (log-writes.rst in the kernel's documentation). An entry
is one header sector and the written data. It is in the log before the board learns that its write
or flush has ended, so data of a flush comes before the flush.
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
"""Start of the two sectors of ext4's superblock in its partition. They are written together,
because flash writes pages of at least 4 KiB. ext4 relies on it, and `e2fsck -p` does not try a
copy of a torn one."""


class Entry(NamedTuple):
    end: int
    """Length of the log after this entry."""
    offset: int
    data: bytes
    flush: bool
    """True if all earlier writes are on the disk."""
    forced: bool
    """True if it is on the disk itself (FUA)."""


def entries(log: Path, size: int) -> Iterator[Entry]:
    """Yield the entries of the first `size` bytes."""
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
    """Yield files in `folder` with the partitions after a power cut at each of these log lengths.
    They started as on `card`. Unwritten parts take no space.
    """
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
    """The content of a recorded disk at a moment of its log, which can only advance."""

    def __init__(self, before: Path) -> None:
        self._flushed = bytearray(before.read_bytes())
        self._written: list[Entry] = []

    def receive_message(self, entry: Entry) -> None:
        if entry.flush:
            for each in self._written:
                self._flushed[each.offset : each.offset + len(each.data)] = each.data
            self._written.clear()
        if entry.data:
            self._written.append(entry)

    def fail(self, image: Path, random: Random) -> None:
        """Write the data after a power cut to `image`: none, some or all of the unflushed data,
        complete or in sectors or pages.
        """
        with image.open("wb") as file:
            file.write(self._flushed)
            _write(file, _come(self._written, random))


def _come(written: Iterable[Entry], random: Random) -> Iterator[tuple[int, bytes]]:
    """Yield the unflushed data that has reached the disk."""
    share = random.choice(SHARES)
    for entry in written:
        torn = 0 < share < 1 and not entry.forced
        pieces = parts(entry.offset, entry.data, random) if torn else [entry[1:3]]
        superblock = random.random() < share
        for offset, data in pieces:
            comes = superblock if offset in SUPERBLOCK else random.random() < share
            if entry.forced or comes:
                yield offset, data
