#!/usr/bin/env python3
"""Makes the built-in maps: fieldagent/hub/console/world.json, with coasts and borders for the
console, and fieldagent/agent/page/world.json, with coarser coasts for a kit's page.

    npm pack world-atlas@2
    tar xzf world-atlas-2*.tgz
    build/world.py package/countries-50m.json

World-atlas is Natural Earth (https://www.naturalearthdata.com), which is in the public domain, as
TopoJSON. It contains a line between two countries once, and so does the result. The result has all
lines with less detail. Each line is a list of longitudes and latitudes in parts of a degree: the
first point, and then the steps from point to point. `steps` is the number of parts in a degree, and
`within` is the maximum deviation of a line in kilometres.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

Point = tuple[float, float]

ROOT = Path(__file__).parents[1] / "fieldagent"
POLE = -89.0
KILOMETRES = 111.2
"""Length of a degree of latitude in kilometres."""


class Detail(NamedTuple):
    target: Path
    most_bytes: int
    kinds: tuple[str, ...]
    steps: int
    """Parts of a degree."""
    awry: float
    """Maximum deviation of a line in degrees."""
    islet: float = 0.3
    """Width and height in degrees below which an island is left out."""

    def within(self) -> int:
        """Return the maximum deviation of a line in kilometres, including the rounding of
        points.
        """
        return ceil(KILOMETRES * (self.awry + 0.5 / self.steps))


DETAILS = (
    Detail(ROOT / "hub/console/world.json", 300_000, ("coasts", "borders"), 100, 0.08),
    Detail(ROOT / "agent/page/world.json", 80_000, ("coasts",), 50, 0.11),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="build/world.py")
    parser.add_argument("topology", type=Path)
    topology = json.loads(parser.parse_args().topology.read_text())
    arcs = [list(decode_arc(arc, topology["transform"])) for arc in topology["arcs"]]
    uses = Counter(
        arc if arc >= 0 else ~arc
        for country in topology["objects"]["countries"]["geometries"]
        for arc in list_arc_numbers(country.get("arcs", []))
    )
    for detail in DETAILS:
        write(detail, arcs, uses)


def write(detail: Detail, arcs: list[list[Point]], uses: Counter[int]) -> None:
    """Write the map file of this detail. Exits with a message if it would be too large."""
    world: dict[str, Any] = {"steps": detail.steps, "within": detail.within()}
    world |= {kind: [] for kind in detail.kinds}
    for arc, many in uses.items():
        kind = "coasts" if many == 1 else "borders"
        if kind in world:
            lines = (
                steps(simplify(line, detail), detail.steps) for line in split_at_edges(arcs[arc])
            )
            world[kind] += [each for each in lines if each]
    text = json.dumps(world).replace(" ", "") + "\n"
    if len(text) > detail.most_bytes:
        raise SystemExit(f"{detail.target} would have {len(text):,} bytes: raise its `awry`")
    detail.target.write_text(text)
    print(f"{detail.target}: {len(text):,} bytes")


def decode_arc(arc: list[list[int]], transform: dict[str, Any]) -> Iterator[Point]:
    """Yield longitude and latitude in degrees of the points of a TopoJSON arc, whose numbers are
    steps on a grid.
    """
    (wide, high), (west, south) = transform["scale"], transform["translate"]
    x = y = 0
    for right, up in arc:
        x, y = x + right, y + up
        yield x * wide + west, y * high + south


def split_at_edges(arc: list[Point]) -> Iterator[list[Point]]:
    """Yield the parts of a line. Segments that cross the 180th meridian, and segments along the
    South Pole, are left out.
    """
    line = arc[:1]
    for before, point in pairwise(arc):
        if abs(point[0] - before[0]) > 180 or point[1] < POLE:
            yield line
            line = []
        line.append(point)
    yield line


def list_arc_numbers(nested: Any) -> Iterator[int]:
    """Yield the arc numbers in nested lists of rings and polygons."""
    if isinstance(nested, int):
        yield nested
    else:
        for each in nested:
            yield from list_arc_numbers(each)


def simplify(line: list[Point], detail: Detail) -> list[Point]:
    """Simplify a line within `detail.awry` degrees (Douglas and Peucker). The result is empty for
    an island smaller than `detail.islet`.
    """
    if line[0] == line[-1]:
        wide, high = (max(axis) - min(axis) for axis in zip(*line, strict=True))
        if max(wide, high) < detail.islet:
            return []
        # The ends of a ring are equal: split it at the point farthest from them.
        middle = max(
            range(len(line)), key=lambda each: compute_distance(line[each], line[0], line[0])
        )
        return [
            *_between(line[: middle + 1], detail.awry),
            *_between(line[middle:], detail.awry)[1:],
        ]
    return _between(line, detail.awry)


def _between(line: list[Point], awry: float) -> list[Point]:
    first, last = line[0], line[-1]
    if len(line) < 3:
        return line
    worst = max(range(1, len(line) - 1), key=lambda each: compute_distance(line[each], first, last))
    if compute_distance(line[worst], first, last) <= awry:
        return [first, last]
    return [*_between(line[: worst + 1], awry), *_between(line[worst:], awry)[1:]]


def compute_distance(point: Point, first: Point, last: Point) -> float:
    """Return the distance of a point from the line between two others, in degrees."""
    (x, y), (west, south) = (point[0] - first[0], point[1] - first[1]), first
    right, up = last[0] - west, last[1] - south
    length = right * right + up * up
    share = max(0.0, min(1.0, (x * right + y * up) / length)) if length else 0.0
    return float(((x - share * right) ** 2 + (y - share * up) ** 2) ** 0.5)


def steps(line: list[Point], per_degree: int) -> list[int]:
    deltas: list[int] = []
    before = (0, 0)
    for longitude, latitude in line:
        point = (round(longitude * per_degree), round(latitude * per_degree))
        if point != before or not deltas:
            deltas += [point[0] - before[0], point[1] - before[1]]
            before = point
    return deltas if len(deltas) > 2 else []


if __name__ == "__main__":
    main()
