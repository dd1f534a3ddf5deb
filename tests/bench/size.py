"""What the program takes to fetch: each zipapp, and what is in it by size."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from zipfile import ZipFile

from tests.bench.table import row
from tests.processes import ZIPAPP

KIT = ZIPAPP.with_name("fieldagent-kit.pyz")
GOALS = {ZIPAPP: "<= 4.4", KIT: "<= 1.6"}
"""Megabytes."""
LARGEST = 12


def main() -> None:
    """Print the rows."""
    for zipapp, goal in GOALS.items():
        if not zipapp.exists():
            print(f"{zipapp.name}: not measured, build/zipapp makes it")
            continue
        row(f"{zipapp.name}", zipapp.stat().st_size / 1e6, goal, "MB")
        for what, size in parts(zipapp).most_common(LARGEST):
            row(f"  {what}", size / 1e6, "", "MB")


def parts(zipapp: Path) -> Counter[str]:
    """Return the compressed bytes of each package in it, and of each room of ours."""
    found: Counter[str] = Counter()
    with ZipFile(zipapp) as archive:
        for each in archive.infolist():
            folder, *rooms = each.filename.split("/")
            compiled = folder.startswith("cpython-")
            place = rooms if compiled else [folder, *rooms]
            kind = " (bytecode)" if compiled else ""
            ours = 2 if place[:1] == ["fieldagent"] and len(place) > 2 else 1
            found["/".join(place[:ours]) + kind] += each.compress_size
    return found


if __name__ == "__main__":
    main()
