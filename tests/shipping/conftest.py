"""Fixtures with the files to ship, which are built once per run, and the Python interpreters on
which they must run.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import machine
from tests.machine import tool, unavailable
from tests.processes import ZIPAPP, Running, sky

ROOT = Path(__file__).parents[2]
CANNOT = 77
PROGRAM = "fieldagent.pyz"


@pytest.fixture(scope="session")
def python_313() -> str | None:
    return next(_installed("3.13"), None) or _fetched("3.13")


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that parallel test processes share: the first one fills it, and the others
    wait. Later it must not be changed.
    """
    home = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        home = home.parent
    folder = home / name
    with (home / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            begun = Path(tempfile.mkdtemp(dir=home))
            make(begun)
            begun.rename(folder)
    return folder


@pytest.fixture(scope="session")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a zipapp of this tree. `tests/run` has built it in the step before."""

    def make(folder: Path) -> None:
        if os.environ.get(machine.BUILT):
            for made in (ZIPAPP, ZIPAPP.with_name(f"{PROGRAM}.cdx.json")):
                shutil.copy(made, folder)
        else:
            build(folder / PROGRAM)

    return made_once(tmp_path_factory, "zipapp", make) / PROGRAM


def build(target: Path, *arguments: str, **how: Any) -> Path:
    subprocess.run([ROOT / "build/zipapp", target, *arguments], check=True, **how)
    return target


def built_version() -> str:
    """Return the version that a build of this tree gets."""
    return subprocess.check_output([sys.executable, ROOT / "build/version.py"], text=True).strip()


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return sorted(made_once(tmp_path_factory, "packages", build_packages).glob("*.deb"))


def build_packages(folder: Path) -> None:
    tool("dpkg-deb", "dpkg")
    subprocess.run([ROOT / "build/deb", folder], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(
    scope="session",
    params=["as built", "3.13", pytest.param("arm64", marks=pytest.mark.full)],
)
def interpreter(request: pytest.FixtureRequest, python_313: str | None) -> str:
    known = {"as built": sys.executable, "3.13": python_313}
    return known.get(request.param) or _fetched(request.param) or unavailable(NO_DEBIAN)


NO_DEBIAN = "no such Python here, and build/foreign-python could not fetch Debian's (see above)"


def _installed(version: str) -> Iterator[str]:
    folders = sorted(Path.home().glob(f".pyenv/versions/{version}*/bin"))
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, folders)])
    for folder in path.split(os.pathsep):
        program = shutil.which(f"python{version}", path=folder)
        # A version manager's stand-in may exist without that version.
        if program and subprocess.run([program, "--version"], capture_output=True).returncode == 0:
            yield program


def _fetched(name: str) -> str | None:
    script = ROOT / "build/foreign-python"
    done = subprocess.run([script, name], stdout=subprocess.PIPE, text=True, timeout=600)
    return done.stdout.strip() if done.returncode == 0 else None


@pytest.fixture(scope="session")
def pc_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the image for a board with a PC processor."""
    return made_once(tmp_path_factory, "pc-image", partial(card_image, "amd64")) / "kit.img"


@pytest.fixture(scope="module")
def image(pc_image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("card") / "kit.img"
    subprocess.run(["cp", "--sparse=always", "--reflink=auto", pc_image, made], check=True)
    yield made
    made.unlink()


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield the simulated modem of a board, whose sessions are short."""
    with sky(tmp_path_factory.mktemp("sky"), latency=3) as running:
        yield running


def card_image(architecture: str, folder: Path) -> Path:
    made = folder / "kit.img"
    command = [str(ROOT / "build/image"), architecture, str(made)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode == CANNOT:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return made
