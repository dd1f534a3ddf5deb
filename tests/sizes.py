"""Checks that no module, class or function has grown into a monster.

`tests/run` runs it as a lint step. It prints everything over a limit and exits with 1 if `ACCEPTED`
does not give a reason for it. The limits are alarms: code is never split to stay below one.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "fieldagent"
MODULE_LINES_MAX = 700
CLASS_METHODS_MAX = 30
FUNCTION_LINES_MAX = 80
ACCEPTED: dict[str, str] = {}
"""The reason for each monster that stays, by the place that `monsters` gives it."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def monsters(name: str, source: str) -> Iterator[tuple[str, str]]:
    """Yield the place and the size of everything in a module that is over a limit."""
    if (lines := len(source.splitlines())) > MODULE_LINES_MAX:
        yield name, f"{lines} lines"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{name}:{node.name}", f"{length} lines"
        elif isinstance(node, ast.ClassDef):
            methods = sum(isinstance(each, Function) for each in node.body)
            if methods > CLASS_METHODS_MAX:
                yield f"{name}:{node.name}", f"{methods} methods"


def faults(root: Path = PACKAGE) -> list[str]:
    """Return every monster without a reason, and every reason without a monster, one line each."""
    sizes = {
        place: size
        for path in sorted(root.rglob("*.py"))
        for place, size in monsters(str(path.relative_to(root)), path.read_text())
    }
    over = [f"{place}: {size}" for place, size in sizes.items() if place not in ACCEPTED]
    return over + [f"ACCEPTED names {place}, which is small" for place in ACCEPTED.keys() - sizes]


if __name__ == "__main__":
    lines = faults()
    print(*lines, sep="\n", end="\n" if lines else "")
    sys.exit(1 if lines else 0)
