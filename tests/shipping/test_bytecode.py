"""The lists of compiled and uncompiled modules in the build name existing modules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "build"))

from bytecode import OFTEN, SELDOM  # noqa: E402 - after the path that has it

OURS = [name for name in (*OFTEN, *SELDOM) if name.startswith("fieldagent/")]


@pytest.mark.parametrize("name", OURS)
def test_listed_modules_exist_in_the_tree(name: str) -> None:
    modules = (path.relative_to(ROOT).as_posix() for path in ROOT.glob("fieldagent/**/*.py"))
    assert any(module.startswith(name) for module in modules)
