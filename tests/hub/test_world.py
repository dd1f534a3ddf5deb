"""Coasts and borders of the console's map: the content of the file, and the simplification of
lines.
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
WORLDS = {
    "hub/console/world.json": (300_000, {"coasts", "borders"}),
    "agent/page/world.json": (80_000, {"coasts"}),
}
"""Maximum bytes, and the kinds of lines."""


def iterate_points(steps: list[int], degree: int) -> Iterator[tuple[float, float]]:
    """Yield longitude and latitude."""
    east = north = 0
    for right, up in zip(steps[::2], steps[1::2], strict=True):
        east, north = east + right, north + up
        yield east / degree, north / degree


@pytest.mark.parametrize("name", WORLDS)
def test_map_lines_are_valid_and_do_not_cross_the_date_line(name: str) -> None:
    path = ROOT / "fieldagent" / name
    most, kinds = WORLDS[name]
    assert path.stat().st_size <= most
    world = json.loads(path.read_text())
    assert world.keys() == {"steps", "within"} | kinds
    for line in (each for kind in kinds for each in world[kind]):
        placed = list(iterate_points(line, world["steps"]))
        assert len(placed) > 1
        assert all(abs(east) <= 180 and abs(north) <= 90 for east, north in placed)
        assert all(abs(one[0] - other[0]) <= 180 for one, other in pairwise(placed))
    # Land's End and the North Cape are in the right place, within the allowed error of the lines.
    coast = [each for line in world["coasts"] for each in iterate_points(line, world["steps"])]
    for east, north in ((-5.71, 50.07), (25.78, 71.17)):
        assert min(max(abs(each[0] - east), abs(each[1] - north)) for each in coast) < 0.5


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "build/world.py"))


def test_simplified_line_keeps_corners_and_drops_near_points(script: dict[str, Any]) -> None:
    split_at_edges, detail = script["split_at_edges"], script["DETAILS"][0]
    simple, steps = (
        partial(script["simplify"], detail=detail),
        partial(script["steps"], per_degree=100),
    )
    assert simple([(0, 0), (1, 0.01), (2, 0), (2, 5)]) == [(0, 0), (2, 0), (2, 5)]
    assert simple([(0, 0), (0.1, 0), (0.1, 0.1), (0, 0)]) == [], "an islet"
    island = [(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)]
    assert simple(island) == island
    assert list(split_at_edges([(179, 1), (180, 2), (-180, 2), (-179, 3)])) == [
        [(179, 1), (180, 2)],
        [(-180, 2), (-179, 3)],
    ]
    assert steps([(1.001, 2), (1.002, 2), (0.5, 2.25)]) == [100, 200, -50, 25]
    assert steps([(1.001, 2), (1.002, 2)]) == []
