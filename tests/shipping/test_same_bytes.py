"""Two builds give the same bytes: here, and from another checkout in another folder, with another
time, umask, user and settings.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.shipping.conftest import CANNOT, ROOT

LONG_AGO = 1_100_000_000
"""Unix time of the files in the other checkout."""
HERE = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"}
ELSEWHERE = {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "7", "COLUMNS": "40"}
MAKES = {
    "zipapp": ["build/zipapp", "{folder}/fieldagent.pyz"],
    "deb": ["build/deb", "{folder}"],
    "image amd64": ["build/image", "amd64", "--own", "{folder}"],
    "image arm64": ["build/image", "arm64", "--own", "{folder}"],
}
"""Commands that build shipped files. For an image, everything except Debian."""
LONG = "image amd64", "image arm64"
"""Each takes minutes."""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkout that only its owner may read."""
    folder = tmp_path_factory.mktemp("other") / "a folder of another name"
    listed = subprocess.check_output(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True
    )
    for name in reversed(listed.splitlines()):
        source, target = ROOT / name, folder / name
        if not source.is_file():
            continue
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copyfile(source, target)
        target.chmod(source.stat().st_mode & 0o700)
        os.utime(target, (LONG_AGO, LONG_AGO))
    for name in (".venv", ".git"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def _build_in(
    checkout: Path, what: str, folder: Path, settings: dict[str, str], umask: int
) -> Path:
    target = folder / "made"
    target.mkdir(parents=True)
    (scratch := folder / "scratch").mkdir()
    program, *words = (each.format(folder=target) for each in MAKES[what])
    done = subprocess.run(
        [checkout / program, *words],
        env={**os.environ, **settings, "TMPDIR": str(scratch)},
        cwd=folder,
        umask=umask,
        capture_output=True,
        text=True,
    )
    if done.returncode == CANNOT:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return target


def _build_here(what: str, folder: Path, request: pytest.FixtureRequest) -> Path:
    """Return the folder that other tests have already built, if any."""
    match what:
        case "zipapp":
            return Path(request.getfixturevalue("zipapp")).parent
        case "deb":
            return Path(request.getfixturevalue("packages")[0]).parent
    return _build_in(ROOT, what, folder, HERE, 0o022)


def _files(folder: Path) -> dict[str, tuple[str, int, int, bytes]]:
    """Return mode, owner, group and content of each path below it, including folders and links."""
    entries = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = b""
        if path.is_symlink():
            content = str(path.readlink()).encode()
        elif path.is_file():
            content = path.read_bytes()
        name = path.relative_to(folder).as_posix()
        entries[name] = (stat.filemode(status.st_mode), status.st_uid, status.st_gid, content)
    return entries


@pytest.mark.full
@pytest.mark.parametrize(
    "what",
    [pytest.param(each, marks=[pytest.mark.full] if each in LONG else []) for each in MAKES],
)
def test_two_builds_are_byte_identical(
    what: str, other: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    first = _files(_build_here(what, tmp_path / "first", request))
    again = _files(_build_in(other, what, tmp_path / "another place", ELSEWHERE, 0o077))
    assert first and first.keys() == again.keys()
    # A file that is shipped alone has a mode that depends on the builder.
    seen = slice(None) if what.startswith("image") else slice(3, None)
    assert [name for name in first if first[name][seen] != again[name][seen]] == []


def test_list_of_reproducible_builds_contains_every_builder() -> None:
    """Each command that writes an SBOM next to its product must be in MAKES."""
    makers = {
        f"build/{path.name}"
        for path in (ROOT / "build").iterdir()
        if path.is_file() and path.name != "sbom.py" and "sbom" in path.read_text()
    }
    assert makers == {words[0] for words in MAKES.values()}
