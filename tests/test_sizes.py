"""What has grown into a monster: these limits catch it, and steer nothing else."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "fieldagent"
FILES = sorted(ROOT.rglob("*.py"))
LINES_MAX, METHODS_MAX, ATTRIBUTES_MAX, PARAMETERS_MAX = 700, 25, 15, 7
FUNCTION_MAX = 80

Function = ast.FunctionDef | ast.AsyncFunctionDef


def classes(path: Path) -> list[ast.ClassDef]:
    return [
        node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)
    ]


def methods(definition: ast.ClassDef) -> list[Function]:
    return [node for node in definition.body if isinstance(node, Function)]


def attributes(definition: ast.ClassDef) -> set[str]:
    """What an instance holds: fields, and whatever a method gives it."""
    fields = {
        node.target.id
        for node in definition.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    targets = {
        node.attr
        for node in ast.walk(definition)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return fields | targets


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=name)
def test_sizes(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES_MAX
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Function):
            assert (node.end_lineno or 0) - node.lineno < FUNCTION_MAX, node.name
    for definition in classes(path):
        assert len(methods(definition)) <= METHODS_MAX, definition.name
        # Plain data, such as the settings, is as wide as what it describes.
        if methods(definition):
            assert len(attributes(definition)) <= ATTRIBUTES_MAX, definition.name
        for method in methods(definition):
            if method.name == "__init__":
                arguments = method.args
                count = len(arguments.args) - 1 + len(arguments.kwonlyargs)
                assert count <= PARAMETERS_MAX, definition.name


def test_a_class_name_stands_once_in_the_tree() -> None:
    places: dict[str, list[str]] = {}
    for path in FILES:
        for definition in classes(path):
            places.setdefault(definition.name, []).append(name(path))
    assert {each: where for each, where in places.items() if len(where) > 1} == {}


PREDICATES = ("is_", "was_", "has_", "may_", "can_", "needs_", "knows_", "fits_")
WRITES = {"unlink", "rename", "write_text", "write_bytes", "commit", "write", "insert"}
SQL = re.compile(r"\s*(INSERT|UPDATE|DELETE|REPLACE|CREATE|DROP|ALTER)\b")
"""How a statement begins that changes what is in a database."""


@pytest.mark.parametrize("path", FILES, ids=name)
def test_predicates_write_nothing(path: Path) -> None:
    """Whoever asks changes nothing by it: what counts or takes away is called by what it does."""
    assert predicates_that_write(path.read_text()) == []


@pytest.mark.parametrize(
    "deed",
    [
        "self.seen = 1",
        "del self.seen[1]",
        "path.unlink()",
        "return bool(db.execute('INSERT INTO arrived VALUES (?) RETURNING id', 1))",
        "return bool(db.execute(f'{TABLE} UPDATE item SET id = 1' + ' RETURNING id'))",
        "db.execute(\n    f'DELETE FROM {table}'\n)",
        "return bool(insert(db, 'arrived', columns, rows))",
    ],
)
def test_a_predicate_that_writes_is_seen(deed: str) -> None:
    source = f"def _is_new(db):\n    {deed}\n"
    assert len(predicates_that_write(source)) == 1
    assert predicates_that_write(source.replace("_is_new", "mark_new")) == []


def predicates_that_write(source: str) -> list[str]:
    """Return the predicates that change something, with what they do."""
    writes = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, Function) or not function.name.lstrip("_").startswith(
            PREDICATES
        ):
            continue
        for node in ast.walk(function):
            match node:
                case ast.Attribute(ctx=ast.Store() | ast.Del()):
                    writes.append(f"{function.name}: {ast.unparse(node)}")
                case ast.Subscript(value=ast.Attribute(), ctx=ast.Store() | ast.Del()):
                    writes.append(f"{function.name}: {ast.unparse(node)}")
                case ast.Call(func=ast.Attribute(attr=called) | ast.Name(called)) if (
                    called in WRITES
                ):
                    writes.append(f"{function.name}: {called}")
                case ast.Constant(str(text)) if SQL.match(text):
                    writes.append(f"{function.name}: {text}")
    return writes
