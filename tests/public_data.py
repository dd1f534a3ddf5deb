"""Downloads public test data of other programs from Debian source packages and from source archives
on PyPI. The files stay in this machine's cache.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.debian_thirteen import CACHE
from tests.machine import unavailable

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
FOLDER = CACHE / "public-data"


def fetch_debian_source(name: str, release: str) -> Path:
    """Return the original archive of a source package of a Debian release."""
    if not (found := [*FOLDER.glob(f"{name}_*.orig.tar.*z")]):
        FOLDER.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory() as directory:
            _download_source(name, release, Path(directory))
            (archive,) = Path(directory).glob(f"{name}_*.orig.tar.*z")
            found = [Path(shutil.move(archive, FOLDER / archive.name))]
    return found[0]


def _download_source(name: str, release: str, folder: Path) -> None:
    targets = ["apt-get", "indextargets", "--format", "$(SITE)", "Identifier: Packages"]
    sites = subprocess.run(targets, capture_output=True, text=True).stdout.splitlines()
    mirror = next((each for each in sites if re.search("/debian/*$", each)), None)
    if mirror is None:
        unavailable("no Debian mirror is among this machine's apt sources")
    (folder / "lists/partial").mkdir(parents=True)
    (folder / "sources.list").write_text(f"deb-src [signed-by={KEYRING}] {mirror} {release} main\n")
    options = {
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "-",
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder,
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-qq", *(f"--option={key}={value}" for key, value in options.items())]
    for command in ([*apt, "update"], [*apt, "source", "--download-only", name]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def fetch_sdist(name: str, version: str) -> Path:
    """Return the source archive of a package on PyPI."""
    if not (found := [*FOLDER.glob(f"*-{version}.tar.gz")]):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-binary=:all:", "--dest", str(FOLDER), f"{name}=={version}"]
        # Without the guard against connections (`tests/offline.py`), which is in PYTHONPATH: as
        # apt-get above, this is not a program under test.
        environment = {name: each for name, each in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        found = [*FOLDER.glob(f"*-{version}.tar.gz")]
    return found[0]


def read_files(archive: Path, pattern: str) -> dict[str, bytes]:
    """Return the contents of the files whose path in the archive contains a match."""
    contents = {}
    with tarfile.open(archive) as opened:
        for each in opened:
            if re.search(pattern, each.name) and (file := opened.extractfile(each)) is not None:
                contents[each.name] = file.read()
    return contents
