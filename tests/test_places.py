"""Tests stand where CONTRIBUTING.md says: who changes a package finds what tries it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
OF_ALL = {"bench", "fuzz", "models", "shipping", "simulation", "soak"}
"""Folders of what is tried of the whole, and mirrors no package."""
TRIES = {"cli": ("fieldagent.kit.",), "agent": ("tests.kit.",)}
"""What a folder tries beside its package: what the commands of a kit carry out; and what runs the
agent's core."""
FILES = sorted(
    path.relative_to(TESTS).as_posix()
    for path in TESTS.glob("*/**/test_*.py")
    if path.relative_to(TESTS).parts[0] not in OF_ALL
)


def imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    plain = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    return plain | {
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


@pytest.mark.parametrize("file", FILES)
def test_a_test_stands_with_the_program_that_it_tries(file: str) -> None:
    """It imports something of its folder's package, uses what other tests there use, or runs the
    product's own processes; else it belongs elsewhere."""
    folder = Path(file).parent
    assert (ROOT / "fieldagent" / folder).is_dir(), "no package has this name"
    room = folder.parts[0]
    tried = (f"fieldagent.{room}", f"tests.{room}.", "tests.processes.", *TRIES.get(room, ()))
    names = imported(TESTS / file)
    of_product = [name for name in names if name.startswith("fieldagent.")]
    assert not of_product or any(name.startswith(tried) for name in names)
