"""What a database gives is read by the names of its columns, and never by counting them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "fieldagent"


def counted_columns(source: str) -> list[int]:
    """Return the lines that read a column of a row by its number. The first is let pass: it is the
    only one, or says what the row is of."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Subscript) and _is_row(node.value) and _counts(node.slice)
    ]


def _is_row(node: ast.expr) -> bool:
    match node:
        case ast.Name("row") | ast.Subscript(ast.Name("rows"), ast.Constant() | ast.UnaryOp()):
            return True
    return False


def _counts(node: ast.expr) -> bool:
    match node:
        case ast.Constant(0) | ast.Constant(str()) | ast.Name() | ast.Attribute():
            return False
    return True


def test_no_column_is_counted() -> None:
    offenders = {
        str(path.relative_to(PROGRAM)): lines
        for path in sorted(PROGRAM.rglob("*.py"))
        # What is on the air has places, and a later form has more of them.
        if path.parent.name != "wire" and (lines := counted_columns(path.read_text()))
    }
    assert offenders == {}


@pytest.mark.parametrize("source", ["row[1]", "row[:2]", "row[-1]", "rows[0][2]", "rows[-1][1:]"])
def test_a_counted_column_is_seen(source: str) -> None:
    assert counted_columns(source) == [1]


@pytest.mark.parametrize("source", ["row[0]", "rows[0][0]", "row['name']", "rows[0]", "rows[:2]"])
def test_what_is_named_or_the_only_one_passes(source: str) -> None:
    assert counted_columns(source) == []
