"""What the processes use while they run: memory, descriptors, threads, files and log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.processes import Running

MIB = 1 << 20


class Gauge(NamedTuple):
    """At one moment."""

    memory: float
    """MiB."""
    descriptors: int
    threads: int
    files: float
    """MiB of its journal with log and index; 0 where it has none."""
    log: float
    """KiB that it printed since it was looked at before."""


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
        log,
    )


Sample = Mapping[str, Gauge]
"""By the name of the process."""


def thirds(samples: list[Sample]) -> tuple[Sample, Sample, Sample]:
    """At the start, in the middle, at the end: the median of a tenth of them at each place."""
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
    """What is not flat from the middle to the end, in words."""
    _, middle, end = thirds(samples)
    found = []
    for name in middle.keys() & end.keys():
        was, now = middle[name], end[name]
        limits = Gauge(
            was.memory * 1.1 + 4, was.descriptors + 16, was.threads + 8, was.files * 1.1 + 2, 0
        )
        for what, before, after, limit in zip(Gauge._fields, was, now, limits, strict=True):
            if what != "log" and after > limit:
                found.append(f"{name}: {what} grew from {before:.1f} to {after:.1f}")
    return found


def table(samples: list[Sample]) -> str:
    places = thirds(samples)
    lines = ["| process | what | start | middle | end |", "|---|---|---|---|---|"]
    words = ("memory, MiB", "descriptors", "threads", "journal, MiB", "log, KiB between samples")
    for name in places[1]:
        for column, what in enumerate(words):
            values = [place[name][column] if name in place else 0 for place in places]
            if any(values) or what != words[3]:
                told = " | ".join(
                    f"{value:.1f}" if value % 1 else f"{value:.0f}" for value in values
                )
                lines.append(f"| {name} | {what} | {told} |")
    return "\n".join(lines)
