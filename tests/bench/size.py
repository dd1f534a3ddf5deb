"""Measures the download size of the program: each zipapp, and its parts by size. The zipapp of a
kit has no hub, so the whole program has rows of its own."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from zipfile import ZipFile

from tests.bench.table import row
from tests.processes import ZIPAPP

BUILD = Path(__file__).parents[2] / "build/zipapp"
PROGRAMS: tuple[tuple[tuple[str, ...], Path, str], ...] = (
    ((), ZIPAPP, "<= 4.8"),
    (("--kit",), ZIPAPP.with_name("fieldagent-kit.pyz"), "<= 2"),
)
"""Build options, path and maximum megabytes of each program."""
LARGEST = 12


def main() -> None:
    """Print the rows."""
    for how, zipapp, goal in PROGRAMS:
        build(*how)
        row(f"{zipapp.name}", zipapp.stat().st_size / 1e6, goal, "MB")
        for what, size in parts(zipapp).most_common(LARGEST):
            row(f"  {what}", size / 1e6, "", "MB")


def build(*how: str) -> None:
    """Build the program of this tree for the current Python. An older build would give old
    figures.
    """
    subprocess.run([sys.executable, BUILD, *how], check=True, stdout=subprocess.DEVNULL)


def parts(zipapp: Path) -> Counter[str]:
    """Return the compressed bytes of each package in it, and of each of our rooms."""
    sizes: Counter[str] = Counter()
    with ZipFile(zipapp) as archive:
        for each in archive.infolist():
            folder, *rooms = each.filename.split("/")
            compiled = folder.startswith("cpython-")
            place = rooms if compiled else [folder, *rooms]
            kind = " (bytecode)" if compiled else ""
            ours = 2 if place[:1] == ["fieldagent"] and len(place) > 2 else 1
            sizes["/".join(place[:ours]) + kind] += each.compress_size
    return sizes


if __name__ == "__main__":
    main()
