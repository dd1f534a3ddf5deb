"""What a public function says of itself begins with what it does, and is there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1] / "fieldagent"
CLAUSES = {"What", "Who", "Whom", "Whose", "Of", "Whether", "Those"} | {
    *("Where", "When", "Why", "How", "Which")
}
"""These begin a clause that hangs on something unsaid."""
SHORT = 2
"""Lines below the first of a function that is read as quickly as what it would say of itself."""


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


def undescribed(source: str) -> Iterator[str]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
            lines = (node.end_lineno or 0) - node.lineno
            if lines > SHORT and not ast.get_docstring(node):
                yield node.name


def test_each_public_function_but_the_short_ones_has_a_docstring() -> None:
    found = {path: [*undescribed(path.read_text())] for path in ROOT.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}


def test_one_without_is_found() -> None:
    body = "    seen = ask()\n    note(seen)\n    return seen\n"
    said = '    """Return the bars, 0 to 5."""\n'
    assert [*undescribed(f"def bars():\n{body}")] == ["bars"]
    assert [*undescribed(f"async def bars(\n    modem,\n):\n{body}")] == ["bars"]
    assert [*undescribed(f"def bars():\n{said}{body}")] == []
    assert [*undescribed("def bars():\n    note()\n    return ask()\n")] == []
    assert [*undescribed(f"def _bars():\n{body}")] == []
