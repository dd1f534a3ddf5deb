"""Chooses the tests of `tests/run full` that belong to a change, for `.ci/run`.

The change is everything since the last commit that is a day older than the newest one, or since
the commit that the variable `CHANGE_BASE` names.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests import durations

ROOT = Path(__file__).parents[1]
DAY_S = 86_400
BUDGET_S = 2400.0
"""Seconds of the chosen files, one after the other: about twelve minutes on two processors."""
CORE = (
    *("fieldagent/wire/", "fieldagent/package/", "fieldagent/store/", "fieldagent/system/"),
    *("fieldagent/agent/journal/", "fieldagent/agent/outbound/", "fieldagent/agent/inbound/"),
    *("fieldagent/agent/channels/", "fieldagent/hub/store/", "fieldagent/hub/field/"),
)
"""Rooms that every Package passes. A change there runs all journeys."""


def changed() -> list[str]:
    """Return the paths that the change has added or edited, below the project's folder."""
    base = os.environ.get("CHANGE_BASE") or _day_before()
    return _git("diff", "--name-only", "--diff-filter=d", base, "HEAD").splitlines()


def _day_before() -> str:
    newest = int(_git("log", "-1", "--format=%ct"))
    before = f"--before={newest - DAY_S}"
    older = _git("rev-list", "-1", before, "HEAD")
    return older or _git("hash-object", "-t", "tree", "/dev/null")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def belonging(paths: Iterable[str]) -> list[str]:
    """Return the files of tests that belong to changed paths, the most specific folders first."""
    paths = [*paths]
    chosen: dict[str, None] = {}
    for path in paths:
        if path.startswith("tests/") and Path(path).name.startswith("test_"):
            chosen[path] = None
    rooms = [path for path in paths if path.startswith("fieldagent/") and path.endswith(".py")]
    for room in sorted({_mirror(path) for path in rooms}, key=lambda each: -each.count("/")):
        for file in sorted((ROOT / room).glob("test_*.py")):
            chosen[str(file.relative_to(ROOT))] = None
    if any(path.startswith(CORE) for path in rooms):
        for file in sorted((ROOT / "tests").rglob("test_*journey*.py")):
            chosen[str(file.relative_to(ROOT))] = None
    return [*chosen]


def _mirror(path: str) -> str:
    """Return the deepest folder of tests for a module, which holds tests of its own."""
    folder = Path("tests", *Path(path).parent.parts[1:])
    while folder != Path("tests") and not [*(ROOT / folder).glob("test_*.py")]:
        folder = folder.parent
    return str(folder)


def files() -> list[str]:
    """Return the files of tests to run, within `BUDGET_S`, and print those that do not fit."""
    seconds = durations.read()
    total, fit, left_out = 0.0, [], []
    for file in belonging(changed()):
        cost = seconds.get(file, durations.LEAST_S)
        if total + cost <= BUDGET_S:
            total += cost
            fit.append(file)
        else:
            left_out.append(file)
    if left_out:
        print(f"\nOver the budget of {BUDGET_S:.0f} s, and only in `tests/run full`: {left_out}")
    return fit
