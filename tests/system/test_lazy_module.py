"""A lazy module is loaded at its first use and not earlier."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
from fieldagent.system.lazy_module import load_lazily
load_lazily("importlib.metadata")
import importlib.metadata
assert "zipfile" not in sys.modules
{asks}
assert "zipfile" in sys.modules
assert sys.modules["importlib.metadata"] is importlib.metadata
assert importlib.metadata.__spec__.name == "importlib.metadata"
load_lazily("importlib.metadata")
assert importlib.metadata.version("trio")
"""


@pytest.mark.parametrize(
    "asks",
    [
        'assert importlib.metadata.version("trio")',
        'from importlib.metadata import version; assert version("trio")',
        "assert importlib.metadata.__file__",
        'later = importlib.metadata; assert later.version("h11") and later.version("trio")',
        "assert not hasattr(importlib.metadata, 'nothing')",
    ],
)
def test_lazy_module_is_loaded_at_its_first_use(asks: str) -> None:
    code = CODE.format(asks=asks)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
