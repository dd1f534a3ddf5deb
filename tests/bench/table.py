"""A benchmark's line: what, the figure, and its goal."""

from __future__ import annotations

from operator import ge, le

MEETS = {"<=": le, ">=": ge}
missed: list[str] = []
"""The lines so far whose figure misses its goal."""


def row(what: str, value: float, goal: str = "", unit: str = "") -> None:
    """`goal` is such as "<= 1.3"; without one the figure stands beside another."""
    line = f"{what:<66} {value:>9.3f} {unit:<4}"
    if goal:
        sign, bound = goal.split()
        line = judged(f"{line} {goal:<9}", MEETS[sign](value, float(bound)))
    print(line.rstrip(), flush=True)


def judged(line: str, met: bool) -> str:
    """Return the line with whether its figure meets its goal, and count it where not."""
    line += " met" if met else " NOT MET"
    if not met:
        missed.append(line)
    return line
