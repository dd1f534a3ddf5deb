"""One command makes a release, and third-party programs find it complete and signed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fieldagent.system.program_delta import apply_delta, get_contents
from tests.machine import tool
from tests.shipping.conftest import ROOT


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkout of the current tree with everything committed."""
    tool("git", "git")
    folder = tmp_path_factory.mktemp("release") / "checkout"
    listed = subprocess.check_output(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True
    )
    for name in listed.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    git(folder, "init", "-q")
    commit(folder)
    return folder


def git(folder: Path, *words: str) -> str:
    ada = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    return subprocess.check_output(["git", "-C", str(folder), *ada, *words], text=True).strip()


def commit(folder: Path) -> None:
    git(folder, "add", "-A", ":!.venv")
    git(folder, "commit", "-qm", "As it is")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `key` and `key.pub`."""
    folder = tmp_path_factory.mktemp("keys")
    make: list[str | Path] = [
        tool("minisign", "minisign"),
        "-G",
        "-W",
        "-p",
        folder / "key.pub",
        "-s",
        folder / "key",
    ]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    return folder


def run_release(checkout: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([checkout / "build/release", *words], capture_output=True, text=True)


@pytest.mark.full
def test_release_is_complete_checksummed_and_signed(
    checkout: Path, keys: Path, tmp_path: Path, zipapp: Path
) -> None:
    tool("dpkg-deb", "dpkg")
    made, before = tmp_path / "made", tmp_path / "before"
    before.mkdir()
    for program in ("fieldagent.pyz", "fieldagent-kit.pyz"):
        shutil.copy(zipapp, before / program)
    done = run_release(checkout, made, "--key", keys / "key", "--from", before)
    assert done.returncode == 0, done.stderr
    number = "0.1.0.dev1+g" + git(checkout, "rev-parse", "--short=8", "HEAD")
    for program in ("fieldagent.pyz", "fieldagent-kit.pyz"):
        output = subprocess.check_output([made / program, "--version"], text=True)
        assert output == f"fieldagent {number}\n"
        signed = minisign(keys, made / program)
        assert f"fieldagent program {number}, signed" in signed
        (delta,) = [each for each in made.glob(f"{program}.from-*") if each.suffix != ".minisig"]
        assert f"fieldagent delta {number}, signed" in minisign(keys, delta)
        assert apply_delta(delta.read_bytes(), get_contents(zipapp.read_bytes())) == get_contents(
            (made / program).read_bytes()
        )
        about = json.loads((made / f"{program}.cdx.json").read_text())
        assert about["metadata"]["component"]["version"] == number
    packages = sorted(made.glob("*.deb"))
    names = ["fieldagent", "fieldagent-common", "fieldagent-hub"]
    assert sorted(each.name.partition("_")[0] for each in packages) == names
    for_dpkg = number.replace(".dev", "~dev")
    for package in packages:
        assert field(package, "Version") == for_dpkg
        needs = field(package, "Depends")
        assert "common" in package.name or f"fieldagent-common (= {for_dpkg})" in needs
    assert f"fieldagent release {number}\n" in minisign(keys, made / "SHA256SUMS")
    subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=made, check=True)
    summed = {line.split("  ")[1] for line in (made / "SHA256SUMS").read_text().splitlines()}
    there = {each.name for each in made.iterdir()} - {"SHA256SUMS", "SHA256SUMS.minisig"}
    assert summed == there
    notes = (made / "notes.md").read_text()
    assert notes.startswith(f"# fieldagent {number}\n\n") and "\n### Added\n" in notes


def minisign(keys: Path, path: Path) -> str:
    check: list[str | Path] = ["minisign", "-V", "-p", keys / "key.pub", "-m", path]
    return str(subprocess.check_output(check, text=True))


def field(package: Path, name: str) -> str:
    return subprocess.check_output(["dpkg-deb", "-f", package, name], text=True).strip()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("dirty", "there are changes here that no commit has: git status"),
        ("no key", "is no file: minisign -G -s"),
        ("in use", "is not empty: name a new folder"),
        ("no section", "CHANGELOG.md has no section 0.1.0"),
        ("untagged", "says 0.1.0, the last tag is none: git fetch --tags, or git tag v0.1.0"),
    ],
)
def test_release_fault_is_reported_before_anything_is_built(
    checkout: Path, keys: Path, tmp_path: Path, wrong: str, said: str
) -> None:
    made = tmp_path / "made"
    key = keys / ("none" if wrong == "no key" else "key")
    head = git(checkout, "rev-parse", "HEAD")
    if wrong == "in use":
        made.mkdir()
        (made / "notes.md").touch()
    elif wrong in ("dirty", "no section"):
        (checkout / "CHANGELOG.md").write_text("# Changelog\n")
    elif wrong == "untagged":
        set_version(checkout, "0.1.0")
    if wrong in ("no section", "untagged"):
        commit(checkout)
    try:
        done = run_release(checkout, made, "--key", key)
    finally:
        git(checkout, "reset", "-q", "--hard", head)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert not made.exists() or [*made.iterdir()] == [made / "notes.md"]


def set_version(checkout: Path, number: str) -> None:
    source = checkout / "fieldagent/__init__.py"
    source.write_text(re.sub('__version__ = ".*"', f'__version__ = "{number}"', source.read_text()))
