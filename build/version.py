"""Prints the version of a build, from git: `python build/version.py`.

    0.1.0.dev1980+g1a2b3c4d    on the way to 0.1.0, 1 980 commits in
    0.1.0                      the commit with the tag v0.1.0
    0.1.0+12.g1a2b3c4d         12 commits after it

`.dirty` at its end: with uncommitted changes. If git cannot provide it, it is the version in
`fieldagent/__init__.py`, the next or the last release. PEP 440 and dpkg sort all of these by time.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINE = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
IN_SOURCE = "fieldagent/__init__.py"


@cache
def built_version(root: Path = ROOT) -> str:
    """Return the version of the tree `root` in the form of PEP 440. If git cannot provide it, print
    the reason to stderr, and return the version in the sources.
    """
    match = LINE.search((root / IN_SOURCE).read_text())
    assert match is not None, f"{IN_SOURCE} names no version"
    coming = match[1]
    try:
        if _git(root, "rev-parse", "--is-shallow-repository") == "true":
            raise NoVersion("its history is cut off here: git fetch --unshallow")
        # Ignore other tags with `--match`. If no tag matches, git prints only a hash.
        description = _git(
            root, "describe", "--tags", "--long", "--always", "--abbrev=8", "--match", "v[0-9]*"
        )
        tag, since, hash_ = (
            description.rsplit("-", 2) if "-" in description else ("", "", f"g{description}")
        )
        since = since or _git(root, "rev-list", "--count", "HEAD")
        dirty = _git(root, "status", "--porcelain", "--untracked-files=no") != ""
    except NoVersion as why:
        print(f"build/version.py: it is {coming}, and no commit: {why}", file=sys.stderr)
        return coming
    return format_version(coming, tag.removeprefix("v"), int(since), hash_ + ".dirty" * dirty)


def format_version(coming: str, tag: str, since: int, commit: str) -> str:
    """Return the version of a `commit` that is `since` commits after the last tagged release, if
    any. `coming` is the version in the sources: 0.2.0.dev0 on the way to a release, or the
    release itself.
    """
    release, on_the_way, _ = coming.partition(".dev")
    if on_the_way:
        return f"{release}.dev{since}+{commit}"
    if tag != release:
        text = f"{IN_SOURCE} says {coming}, the last tag is {tag or 'none'}"
        sys.exit(f"build/version.py: {text}: git fetch --tags, or git tag v{coming}")
    return release if not since and not commit.endswith(".dirty") else f"{release}+{since}.{commit}"


def format_for_dpkg(version: str) -> str:
    """Return the version for dpkg, in which `~` puts 0.2.0.dev1 before 0.2.0."""
    return re.sub(r"^([0-9.]*[0-9])\.?(dev|a|b|rc)(?=[0-9])", r"\1~\2", version)


def write_into(tree: Path) -> None:
    """Write the built version into the program in `tree`."""
    source = tree / IN_SOURCE
    source.write_text(LINE.sub(f'__version__ = "{built_version()}"', source.read_text()))


class NoVersion(Exception):
    """Error: git cannot provide the version. The message contains the reason."""


def _git(root: Path, *words: str) -> str:
    # Set `safe.directory`, because the checkout may belong to another user.
    command = ["git", "-c", "safe.directory=*", "-C", str(root), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise NoVersion("git is missing") from None
    if done.returncode != 0:
        raise NoVersion((done.stderr.strip().splitlines() or ["git fails"])[-1])
    return done.stdout.strip()


if __name__ == "__main__":
    print(built_version())
