"""Checks the size of each module, class and function.

`tests/run` runs it as the step `sizes`. It prints each place over a limit that has no reason in
`ACCEPTED`, and each reason that is out of date. Either gives exit code 1. Don't split code only to
stay below a limit.
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
"""Reasons for places that may be over a limit, by the name that `oversized` yields."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def oversized(name: str, source: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the size of each module, class and function in a source that is over a
    limit.
    """
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
    """Return each place over a limit without a reason, and each outdated reason, one line each."""
    sizes = {
        place: size
        for path in sorted(root.rglob("*.py"))
        for place, size in oversized(str(path.relative_to(root)), path.read_text())
    }
    over = [f"{place}: {size}" for place, size in sizes.items() if place not in ACCEPTED]
    return over + [f"ACCEPTED names {place}, which is small" for place in ACCEPTED.keys() - sizes]


if __name__ == "__main__":
    lines = faults()
    print(*lines, sep="\n", end="\n" if lines else "")
    sys.exit(1 if lines else 0)
