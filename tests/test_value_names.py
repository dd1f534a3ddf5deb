"""A value is named by what it is, and not by how it was come by: a text, an argument, a result."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTICIPLES = {"told", "given", "found"}


def participles(source: str) -> list[int]:
    """Return the lines that give one of the `PARTICIPLES` to a variable or a parameter. A member of
    a class may have it: there it says what is known of the whole."""
    tree = ast.parse(source)
    members = {
        id(statement.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.arg)
        if _bound(node) in PARTICIPLES and id(node) not in members
    ]


def _bound(node: ast.Name | ast.arg) -> str:
    match node:
        case ast.Name(name, ast.Store()) | ast.arg(name):
            return name
    return ""


@pytest.mark.parametrize("folder", ["fieldagent", "tests", "build"])
def test_none_is_named_by_a_participle(folder: str) -> None:
    offenders = {
        str(path.relative_to(ROOT)): lines
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (lines := participles(path.read_text()))
    }
    assert offenders == {}


@pytest.mark.parametrize(
    "source",
    [
        "found = 1",
        "for told in rows: pass",
        "def f(given): pass",
        "[x for found, x in y]",
        "f(told := 1)",
        "lambda *, given: 1",
    ],
)
def test_one_is_seen(source: str) -> None:
    assert participles(source) == [1]
