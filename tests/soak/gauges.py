"""Measures the resources of running processes: memory, descriptors, threads, files and log."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tests.processes import Running

MIB = 1 << 20
RESERVE = 10.0
"""MiB by which file and log grow at once when the journal renews its reserve for a full disk."""
FILLS = 2.0
"""MiB that a journal may gain in ten minutes until its stored data has reached its limit."""


class Gauge(NamedTuple):
    """Resources at one moment."""

    memory: float
    """MiB of memory."""
    descriptors: int
    threads: int
    files: float
    """MiB of its journal with log and index, or 0 without one."""
    content: float
    """MiB of these with content."""
    log: float
    """KiB of output since the last sample."""


def look(running: Running, folder: Path | None) -> Gauge:
    here = Path(f"/proc/{running.process.pid}")
    (pages,) = (line for line in (here / "status").read_text().splitlines() if "VmRSS" in line)
    printed = running.output()
    log = sum(len(line) + 1 for line in printed) / 1024
    printed.clear()
    files = [] if folder is None else [*folder.glob("journal.sqlite3*")]
    return Gauge(
        int(pages.split()[1]) / 1024,
        len([*(here / "fd").iterdir()]),
        len([*(here / "task").iterdir()]),
        sum(file.stat().st_size for file in files) / MIB,
        0.0 if folder is None else _content(folder / "journal.sqlite3") / MIB,
        log,
    )


def _content(journal: Path) -> float:
    """Return the bytes of its used pages."""
    with closing(sqlite3.connect(f"{journal.as_uri()}?mode=ro", uri=True)) as db:
        pages, free, size = (
            db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
    return float((pages - free) * size)


Sample = Mapping[str, Gauge]
"""Gauges by the name of the process."""


def thirds(samples: list[Sample]) -> tuple[Sample, Sample, Sample]:
    """Return samples at the start, in the middle and at the end: the median of a tenth of them at
    each place.
    """
    width = max(1, len(samples) // 10)
    middle = len(samples) // 2
    places = (samples[:width], samples[middle : middle + width], samples[-width:])
    start, mid, end = (_median(place) for place in places)
    return start, mid, end


def _median(samples: list[Sample]) -> Sample:
    names = set.intersection(*(set(sample) for sample in samples))
    return {
        name: Gauge(
            *(
                sorted(column)[len(samples) // 2]
                for column in zip(*(s[name] for s in samples), strict=True)
            )
        )
        for name in sorted(names)
    }


def growing(samples: list[Sample]) -> list[str]:
    """Return the resources that grow from the middle to the end, as text."""
    _, middle, end = thirds(samples)
    complaints = []
    for name in middle.keys() & end.keys():
        was, now = middle[name], end[name]
        limits = Gauge(
            was.memory * 1.1 + 4,
            was.descriptors + 16,
            was.threads + 8,
            was.files * 1.1 + RESERVE,
            was.content * 1.1 + FILLS,
            0,
        )
        for what, before, after, limit in zip(Gauge._fields, was, now, limits, strict=True):
            if what != "log" and after > limit:
                complaints.append(f"{name}: {what} grew from {before:.1f} to {after:.1f}")
    return complaints


def table(samples: list[Sample]) -> str:
    places = thirds(samples)
    lines = ["| process | what | start | middle | end |", "|---|---|---|---|---|"]
    words = (
        *("memory, MiB", "descriptors", "threads"),
        *("journal, MiB", "of it in use, MiB", "log, KiB between samples"),
    )
    for name in places[1]:
        for column, what in enumerate(words):
            values = [place[name][column] if name in place else 0 for place in places]
            if any(values) or what not in words[3:5]:
                figures = " | ".join(
                    f"{value:.1f}" if value % 1 else f"{value:.0f}" for value in values
                )
                lines.append(f"| {name} | {what} | {figures} |")
    return "\n".join(lines)
