"""The zipapp, built once, and the interpreters that it must run on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]


def lacking(why: str) -> NoReturn:
    """What a test needs is not here: its author may go on, CI may not."""
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="session")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("zipapp") / "fieldagent.pyz"
    subprocess.run([ROOT / "build/zipapp", target], check=True)
    return target


@pytest.fixture(scope="session", params=["as built", "3.13", "arm64"])
def interpreter(request: pytest.FixtureRequest) -> str:
    if request.param == "as built":
        return sys.executable
    if request.param == "3.13":
        for candidate in _installed("3.13"):
            return candidate
    return _fetched(request.param)


def _installed(version: str) -> Iterator[str]:
    folders = sorted(Path.home().glob(f".pyenv/versions/{version}*/bin"))
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, folders)])
    for folder in path.split(os.pathsep):
        found = shutil.which(f"python{version}", path=folder)
        # A version manager's stand-in may be there without the version.
        if found and subprocess.run([found, "--version"], capture_output=True).returncode == 0:
            yield found


def _fetched(name: str) -> str:
    script = ROOT / "build/foreign-python"
    done = subprocess.run([script, name], capture_output=True, text=True, timeout=600)
    if done.returncode:
        lacking(f"no Python for {name}: {done.stderr}")
    return done.stdout.strip()
