"""Sources in archives mean the same as those of the tree, line by line."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "build"))

import bare  # noqa: E402


@pytest.mark.parametrize(
    ("source", "shorter"),
    [
        ("x = 1 if y else -2\n", "x=1 if y else-2\n"),
        (
            "def f(a, *, b = 1) -> None:\n    return a [b]\n",
            "def f(a,*,b=1)->None:\n return a[b]\n",
        ),
        ("from . import a as b\nprint ('a' 'b', 1 .real)\n", None),
        ("x = f'{ {1: 2}[1] !r:> {w} }' + r'\\d' [0]\n", None),
        ('x = """\n    a  =  b\n""" . strip ()\n', None),
        ("x = [\n    1, # one\n    * y,\n]\n", None),
        ("if (n := 5) > 3 and not - n:\n\tpass\n", None),
        ("with (a as b, c as d):\n    x [1 : :2] = lambda * z : z\n", None),
    ],
)
def test_tightened_source_has_the_same_syntax_tree(source: str, shorter: str | None) -> None:
    tight = bare.remove_spaces(source)
    assert ast.dump(ast.parse(tight)) == ast.dump(ast.parse(source))
    assert tight.count("\n") == source.count("\n")
    assert shorter is None or tight == shorter


def test_all_tightened_wire_modules_have_the_same_syntax_tree() -> None:
    for path in sorted((ROOT / "fieldagent/wire").glob("*.py")):
        source = path.read_text()
        tight = bare.remove_spaces(source)
        assert ast.dump(ast.parse(tight)) == ast.dump(ast.parse(source)), path
        assert len(tight) <= len(source)
