#!/usr/bin/env python3
"""Makes fieldagent/hub/console/world.json: coasts and borders that the console's map has without
any network.

    npm pack world-atlas@2
    tar xzf world-atlas-2*.tgz
    build/world.py package/countries-50m.json

World-atlas is Natural Earth (https://www.naturalearthdata.com), which is in the public domain, as
TopoJSON: a line that two countries share is there once, and stays one. What is made has all lines
with less detail: each is a list of longitude and latitude in hundredths of a degree, the first and
then the steps from point to point.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

Point = tuple[float, float]

TARGET = Path(__file__).parents[1] / "fieldagent/hub/console/world.json"
MOST_BYTES = 300_000
STEPS = 100
"""Of a degree: a step is 1.1 km at most."""
AWRY = 0.08
"""Degrees that a line may be beside what it is made of."""
POLE = -89.0
ISLET = 0.3
"""Degrees of width and height below which an island is left out."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="build/world.py")
    parser.add_argument("topology", type=Path)
    topology = json.loads(parser.parse_args().topology.read_text())
    arcs = [list(points_of(arc, topology["transform"])) for arc in topology["arcs"]]
    uses = Counter(
        arc if arc >= 0 else ~arc
        for country in topology["objects"]["countries"]["geometries"]
        for arc in numbers_in(country.get("arcs", []))
    )
    world: dict[str, list[list[int]]] = {"coasts": [], "borders": []}
    for arc, many in uses.items():
        lines = world["coasts" if many == 1 else "borders"]
        lines += [steps(simple(line)) for line in this_side(arcs[arc])]
    text = json.dumps({name: [each for each in lines if each] for name, lines in world.items()})
    TARGET.write_text(text.replace(" ", "") + "\n")
    size = TARGET.stat().st_size
    if size > MOST_BYTES:
        raise SystemExit(f"{TARGET.name} has {size:,} bytes, more than {MOST_BYTES:,}: raise AWRY")
    print(f"{TARGET}: {size:,} bytes")


def points_of(arc: list[list[int]], transform: dict[str, Any]) -> Iterator[Point]:
    """Yield longitude and latitude in degrees: TopoJSON has steps of a grid."""
    (wide, high), (west, south) = transform["scale"], transform["translate"]
    x = y = 0
    for right, up in arc:
        x, y = x + right, y + up
        yield x * wide + west, y * high + south


def this_side(arc: list[Point]) -> Iterator[list[Point]]:
    """Yield the parts of a line that do not cross the map from edge to edge: the 180th meridian is
    at both, and the South Pole, which is no coast, all along the lower."""
    line = arc[:1]
    for before, point in pairwise(arc):
        if abs(point[0] - before[0]) > 180 or point[1] < POLE:
            yield line
            line = []
        line.append(point)
    yield line


def numbers_in(nested: Any) -> Iterator[int]:
    """Yield the arcs of rings and polygons, however deep they lie."""
    if isinstance(nested, int):
        yield nested
    else:
        for each in nested:
            yield from numbers_in(each)


def simple(line: list[Point]) -> list[Point]:
    """Return the line with as few points as keep it within `AWRY` (Douglas and Peucker), and of an
    islet nothing."""
    if line[0] == line[-1]:
        wide, high = (max(axis) - min(axis) for axis in zip(*line, strict=True))
        if max(wide, high) < ISLET:
            return []
        # A ring has no two ends: the point farthest from the first is the other.
        middle = max(range(len(line)), key=lambda each: distance(line[each], line[0], line[0]))
        return [*_between(line[: middle + 1]), *_between(line[middle:])[1:]]
    return _between(line)


def _between(line: list[Point]) -> list[Point]:
    first, last = line[0], line[-1]
    if len(line) < 3:
        return line
    worst = max(range(1, len(line) - 1), key=lambda each: distance(line[each], first, last))
    if distance(line[worst], first, last) <= AWRY:
        return [first, last]
    return [*_between(line[: worst + 1]), *_between(line[worst:])[1:]]


def distance(point: Point, first: Point, last: Point) -> float:
    """Return how far a point is from the line between two others, in degrees."""
    (x, y), (west, south) = (point[0] - first[0], point[1] - first[1]), first
    right, up = last[0] - west, last[1] - south
    length = right * right + up * up
    share = max(0.0, min(1.0, (x * right + y * up) / length)) if length else 0.0
    return float(((x - share * right) ** 2 + (y - share * up) ** 2) ** 0.5)


def steps(line: list[Point]) -> list[int]:
    found: list[int] = []
    before = (0, 0)
    for longitude, latitude in line:
        point = (round(longitude * STEPS), round(latitude * STEPS))
        if point != before or not found:
            found += [point[0] - before[0], point[1] - before[1]]
            before = point
    return found if len(found) > 2 else []


if __name__ == "__main__":
    main()
