"""What a public function says of itself begins with what it does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1] / "fieldagent"
CLAUSES = {"What", "Who", "Whom", "Whose", "Of", "Whether", "Those"} | {
    *("Where", "When", "Why", "How", "Which")
}
"""These begin a clause that hangs on something unsaid."""


def hanging(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
            words = (ast.get_docstring(node) or "").split()
            if words and words[0].strip(",") in CLAUSES:
                yield node.name


def test_no_public_docstring_begins_with_a_clause() -> None:
    found = {path: [*hanging(path.read_text())] for path in ROOT.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}


def test_one_that_does_is_found() -> None:
    assert [*hanging('def bars():\n    """How well it hears."""')] == ["bars"]
    assert [*hanging('def bars():\n    """Return how well it hears."""')] == []
    assert [*hanging('def _bars():\n    """How well it hears."""')] == []
