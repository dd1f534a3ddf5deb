"""A built version contains its commit, and a later build counts as newer: for pip, for dpkg and for
`fieldagent update`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.version import Version

from fieldagent.extensions.fleet.version_order import make_sort_key
from tests.machine import tool
from tests.shipping.conftest import ROOT

sys.path.insert(0, str(ROOT / "build"))
from version import built_version, format_for_dpkg


class Checkout:
    """A repository with the files that `build/version.py` reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "fieldagent").mkdir(parents=True)
        self.git("init", "-q")

    def git(self, *words: str) -> str:
        as_somebody = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
        command = ["git", "-C", str(self.folder), *as_somebody, *words]
        return subprocess.check_output(command, text=True).strip()

    def say(self, number: str) -> None:
        (self.folder / "fieldagent/__init__.py").write_text(f'__version__ = "{number}"\n')

    def commit(self, times: int = 1) -> None:
        self.git("add", "-A")
        for _ in range(times):
            self.git("commit", "-qm", "More", "--allow-empty")

    def version(self) -> str:
        built_version.cache_clear()
        return built_version(self.folder)

    def hash(self) -> str:
        return "g" + self.git("rev-parse", "--short=8", "HEAD")


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    tool("git", "git")
    return Checkout(tmp_path / "checkout")


def test_later_build_has_a_higher_version_for_pip_dpkg_and_update(checkout: Checkout) -> None:
    tool("dpkg", "dpkg")
    seen: list[str] = []

    def expect(form: str) -> None:
        seen.append(checkout.version())
        assert seen[-1] == form.format(checkout.hash())

    checkout.say("0.1.0.dev0")
    checkout.commit(3)
    expect("0.1.0.dev3+{}")
    checkout.commit(7)
    expect("0.1.0.dev10+{}")
    checkout.say("0.1.0")
    checkout.commit()
    checkout.git("tag", "a-tag-of-other-kind")
    checkout.git("tag", "v0.1.0")
    expect("0.1.0")
    checkout.commit(2)
    expect("0.1.0+2.{}")
    checkout.commit(8)
    expect("0.1.0+10.{}")
    checkout.say("0.2.0.dev0")
    expect("0.2.0.dev10+{}.dirty")
    checkout.commit()
    expect("0.2.0.dev11+{}")
    checkout.say("0.2.0")
    checkout.commit()
    checkout.git("tag", "-a", "-m", "0.2.0", "v0.2.0")
    expect("0.2.0")
    for before, after in pairwise(dict.fromkeys(seen)):
        assert Version(before) < Version(after)
        assert make_sort_key(before) < make_sort_key(after), (before, after)
        asked = [
            "dpkg",
            "--compare-versions",
            format_for_dpkg(before),
            "lt",
            format_for_dpkg(after),
        ]
        assert subprocess.run(asked).returncode == 0, asked


def test_untagged_release_version_is_not_built(checkout: Checkout) -> None:
    checkout.say("0.1.0")
    checkout.commit()
    with pytest.raises(SystemExit, match=r"says 0\.1\.0, the last tag is none"):
        checkout.version()


@pytest.mark.parametrize("what", ["no git", "no repository", "shallow"])
def test_version_without_git_history_is_that_of_the_sources(
    checkout: Checkout, what: str, tmp_path: Path
) -> None:
    checkout.say("0.1.0.dev0")
    checkout.commit(3)
    folder = checkout.folder
    if what == "shallow":
        folder = tmp_path / "shallow"
        checkout.git("clone", "-q", "--depth", "1", f"file://{checkout.folder}", str(folder))
    elif what == "no repository":
        (folder / ".git").rename(tmp_path / "elsewhere")
    (folder / "build").mkdir()
    (folder / "build/version.py").write_bytes((ROOT / "build/version.py").read_bytes())
    done = subprocess.run(
        [sys.executable, folder / "build/version.py"],
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path)}
        | ({"PATH": str(tmp_path)} if what == "no git" else {}),
        capture_output=True,
        text=True,
    )
    assert done.stdout == "0.1.0.dev0\n"
    assert done.stderr.startswith("build/version.py: it is 0.1.0.dev0, and no commit: ")
