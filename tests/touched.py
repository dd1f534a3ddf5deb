"""Chooses test files for changed Python modules and changed test files.

`.ci/run` runs their tests that are marked `full`.

The change is all commits of the four hours before the newest one, or all since the commit that the
variable `CHANGE_BASE` names.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from itertools import accumulate
from math import inf
from pathlib import Path

from tests import durations

ROOT = Path(__file__).parents[1]
WINDOW_S = 4 * 3600
BUDGET_S = 1500.0
"""Largest sum of recorded seconds of the chosen files. Five workers share them."""
CORE = (
    *("fieldagent/wire/", "fieldagent/package/", "fieldagent/store/", "fieldagent/system/"),
    *("fieldagent/agent/journal/", "fieldagent/agent/outbound/", "fieldagent/agent/inbound/"),
    *("fieldagent/agent/channels/", "fieldagent/hub/store/", "fieldagent/hub/field/"),
)
"""Folders that process every Package. A change there also selects all `test_*journey*.py` files."""


def changed() -> list[str]:
    """Return the paths that the change has added or edited, below the project's folder."""
    base = os.environ.get("CHANGE_BASE") or _base()
    return _git("diff", "--name-only", "--diff-filter=d", base, "HEAD").splitlines()


def _base() -> str:
    newest = int(_git("log", "-1", "--format=%ct"))
    before = f"--before={newest - WINDOW_S}"
    older = _git("rev-list", "-1", before, "HEAD")
    return older or _git("hash-object", "-t", "tree", "/dev/null")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def belonging(paths: Iterable[str]) -> list[str]:
    """Return the test files that belong to changed paths: changed test files, and those that mirror
    changed modules.
    """
    paths = [*paths]
    chosen: dict[str, None] = {}
    for path in paths:
        if path.startswith("tests/") and Path(path).name.startswith("test_"):
            chosen[path] = None
    rooms = [path for path in paths if path.startswith("fieldagent/") and path.endswith(".py")]
    for room in sorted({_mirror(path) for path in rooms}):
        for file in sorted((ROOT / room).glob("test_*.py")):
            chosen[str(file.relative_to(ROOT))] = None
    if any(path.startswith(CORE) for path in rooms):
        for file in sorted((ROOT / "tests").rglob("test_*journey*.py")):
            chosen[str(file.relative_to(ROOT))] = None
    return [*chosen]


def _mirror(path: str) -> str:
    """Return the folder of tests for a module: the closest one that exists and contains test
    files.
    """
    folder = Path("tests", *Path(path).parent.parts[1:])
    while folder != Path("tests") and not [*(ROOT / folder).glob("test_*.py")]:
        folder = folder.parent
    return str(folder)


def files() -> list[str]:
    """Return the files of tests to run within `BUDGET_S`, the fastest first.

    A file without recorded seconds does not fit. Print the number of files that do not fit.
    """
    seconds = durations.read()
    costs = {file: seconds.get(file, inf) for file in belonging(changed())}
    fastest = sorted(costs, key=lambda file: costs[file])
    sums = accumulate(costs[file] for file in fastest)
    fit = [file for file, total in zip(fastest, sums, strict=True) if total <= BUDGET_S]
    if left_out := len(costs) - len(fit):
        print(f"\nSkipped {left_out} files over the time budget. `tests/run full` runs them.")
    return fit
