"""Each extension can be deleted: the rest of the tree works without its folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fieldagent.extensions import NAMES, SETTINGS
from tests import offline

ROOT = Path(__file__).parents[2]
SIMULATED = r"^from tests\.processes import (?:\([^)]*|[^\n(]*)\b(?:imt_)?sky\b"
"""Tests of an agent below the simulated sky of `lab`, which they use as a process."""
SEVERAL = (
    *("tests/extensions/", "tests/soak/", "tests/bench/", "tests/shipping/"),
    *("tests/simulation/", "tests/models/"),
    *("tests/cli/test_root.py", "tests/cli/root_runner.py"),
)
"""Tests that may use several extensions, such as those of packages and of root's commands. Core
tests use only simulated hardware, from `lab`."""
LIST = "fieldagent/extensions/__init__.py"
CORE = (
    *("tests/agent/channels/test_traces.py", "tests/agent/test_agent.py"),
    *("tests/agent/test_settings.py", "tests/agent/test_rest.py"),
    *("tests/hub/test_store.py", "tests/hub/test_push_api.py", "tests/hub/test_settings.py"),
    *("tests/package", "tests/wire", "tests/cli/test_arguments.py"),
    "tests/cli/test_demo_hub.py",
)
"""Tests of the core that start both programs and the demo. All others are only imported. Without
`lab`, replayed traces are the modem."""


def tree_without(extension: str, target: Path) -> Path:
    """Copy the tree to `target` without the extension's folders and its line in the list."""
    ignored = shutil.ignore_patterns(".venv", ".git", "__pycache__", "dist", ".*_cache")
    shutil.copytree(ROOT, target, ignore=ignored, symlinks=True)
    (target / ".venv").symlink_to(ROOT / ".venv")
    for home in ("fieldagent", "tests"):
        shutil.rmtree(target / home / "extensions" / extension)
    for path in users_of(extension, target):
        path.unlink()
    names = target / LIST
    names.write_text(re.sub(rf'^    "{extension}",\n', "", names.read_text(), flags=re.MULTILINE))
    return target


def users_of(extension: str, tree: Path) -> set[Path]:
    """Return the tests that use the extension, directly or through another test's module."""
    sources = {path: path.read_text() for path in (tree / "tests").rglob("*.py")}
    found: set[Path] = set()
    wanted = {rf"\b(fieldagent|tests)\.extensions\.{extension}\b"}
    if extension == "lab":
        wanted.add(SIMULATED)
    while wanted:
        pattern = re.compile("|".join(wanted), re.MULTILINE)
        new = {path for path, text in sources.items() if pattern.search(text)} - found
        found |= new
        wanted = {
            imports_of(".".join(path.relative_to(tree).with_suffix("").parts)) for path in new
        }
    return found


def imports_of(module: str) -> str:
    """Return a pattern of the imports of a module, by its own name or from its package."""
    package, _, name = module.rpartition(".")
    package = re.escape(package)
    return rf"\b{package}\.{name}\b|\bfrom {package} import (?:\([^)]*|[^\n(]*)\b{name}\b"


def run(tree: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": offline.path(str(tree))}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)


@pytest.mark.full
@pytest.mark.parametrize("extension", sorted({*SETTINGS.values()}))
def test_check_names_the_extension_of_a_setting(extension: str, tmp_path: Path) -> None:
    tree = tree_without(extension, tmp_path / "tree")
    beginning = next(each for each, name in SETTINGS.items() if name == extension)
    settings = tmp_path / "agent.properties"
    settings.write_text(f"{beginning}x=1\n")
    done = run(tree, sys.executable, "-m", "fieldagent", "check", "--config", settings)
    assert f"belongs to the extension {extension}" in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("extension", NAMES)
def test_other_tests_pass_without_the_extension(extension: str, tmp_path: Path) -> None:
    tree = tree_without(extension, tmp_path / "tree")
    gone = {str(path.relative_to(ROOT)) for path in users_of(extension, ROOT)}
    assert extension == "lab" or all(path.startswith(SEVERAL) for path in gone), gone
    layers = run(tree, sys.executable, "-m", "tests.layers")
    assert layers.returncode == 0, layers.stdout
    quiet = ("-q", "-p", "no:cacheprovider")
    collected = run(
        tree, sys.executable, "-m", "pytest", "--collect-only", "-qqq", "-m", "not soak"
    )
    assert collected.returncode == 0, collected.stdout[-3000:]
    others = [f"tests/extensions/{name}" for name in NAMES if name != extension][-1:]
    core = [each for each in CORE if (tree / each).exists()]
    done = run(tree, sys.executable, "-m", "pytest", *quiet, "-x", *core, *others)
    assert done.returncode == 0, done.stdout[-3000:]
