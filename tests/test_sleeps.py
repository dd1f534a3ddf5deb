"""A test waits for what it waits for: a sleep stands in a loop that looks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACED = TESTS / "bench"
"""Who calls there has a pace, which is a part of what is measured."""


def blind_sleeps(tree: ast.AST, *, looks: bool = False) -> Iterator[int]:
    """Yield the lines of `time.sleep` outside of every `while` of their function."""
    for node in ast.iter_child_nodes(tree):
        inner = isinstance(node, ast.While) or (
            looks and not isinstance(node, ast.FunctionDef | ast.Lambda)
        )
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "time.sleep" and not looks:
            yield node.lineno
        yield from blind_sleeps(node, looks=inner)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("time.sleep(1)", [1]),
        ("for n in ():\n    time.sleep(1)", [2]),
        ("while True:\n    time.sleep(1)", []),
        ("while True:\n    def f():\n        time.sleep(1)", [3]),
        ("while True:\n    try: f()\n    except OSError: time.sleep(1)", []),
    ],
)
def test_a_blind_sleep_is_found(text: str, lines: list[int]) -> None:
    assert [*blind_sleeps(ast.parse(text))] == lines


def test_no_sleep_guesses() -> None:
    offenders = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        if PACED not in path.parents
        for line in blind_sleeps(ast.parse(path.read_text()))
    ]
    assert offenders == []
