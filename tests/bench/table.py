"""Prints and collects the lines of a benchmark: name, value, unit and goal."""

from __future__ import annotations

from operator import ge, le

MEETS = {"<=": le, ">=": ge}
missed: list[str] = []
"""Printed lines whose value misses its goal."""
shown: list[str] = []
"""All printed lines."""


def show(line: str) -> None:
    print(line, flush=True)
    shown.append(line.rstrip())


def row(what: str, value: float, goal: str = "", unit: str = "") -> None:
    """Print a line. `goal` is a comparison such as "<= 1.3". Without a goal, the value is only
    informative.
    """
    figure = f"{value:,.3f}".rstrip("0").rstrip(".")
    line = f"{what:<66} {figure:>9} {unit:<4}"
    if goal:
        sign, bound = goal.split()
        line = judged(f"{line} {goal:<9}", MEETS[sign](value, float(bound)))
    show(line.rstrip())


def judged(line: str, met: bool) -> str:
    """Return the line with its verdict, `met` or `NOT MET`. Add a line that is not met to
    `missed`.
    """
    line += " met" if met else " NOT MET"
    if not met:
        missed.append(line)
    return line
