"""Tells the version of what is built, by git: `python build/version.py`.

    0.1.0.dev1980+g1a2b3c4d    on the way to 0.1.0, 1 980 commits in
    0.1.0                      the commit that bears the tag v0.1.0
    0.1.0+12.g1a2b3c4d         12 commits after it

`.dirty` at its end: with changes that are not committed. Where git does not say, it is what stands
in `fieldagent/__init__.py`, the release that comes next or came last. PEP 440 and dpkg order all of
these as they came to be.
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
    """Return it as PEP 440 writes it. Where git does not say, stderr says why."""
    match = LINE.search((root / IN_SOURCE).read_text())
    assert match is not None, f"{IN_SOURCE} names no version"
    coming = match[1]
    try:
        if _git(root, "rev-parse", "--is-shallow-repository") == "true":
            raise Untold("its history is cut off here: git fetch --unshallow")
        # `--match` also where there are other tags; a lone hash where there is none of ours.
        description = _git(
            root, "describe", "--tags", "--long", "--always", "--abbrev=8", "--match", "v[0-9]*"
        )
        tag, since, hash_ = (
            description.rsplit("-", 2) if "-" in description else ("", "", f"g{description}")
        )
        since = since or _git(root, "rev-list", "--count", "HEAD")
        dirty = _git(root, "status", "--porcelain", "--untracked-files=no") != ""
    except Untold as why:
        print(f"build/version.py: it is {coming}, and no commit: {why}", file=sys.stderr)
        return coming
    return named(coming, tag.removeprefix("v"), int(since), hash_ + ".dirty" * dirty)


def named(coming: str, tag: str, since: int, commit: str) -> str:
    """Return the version of a `commit`, so many after the release that is tagged last, if any.
    `coming` stands in the sources: 0.2.0.dev0 on the way to a release, or the release itself."""
    release, on_the_way, _ = coming.partition(".dev")
    if on_the_way:
        return f"{release}.dev{since}+{commit}"
    if tag != release:
        text = f"{IN_SOURCE} says {coming}, the last tag is {tag or 'none'}"
        sys.exit(f"build/version.py: {text}: git fetch --tags, or git tag v{coming}")
    return release if not since and not commit.endswith(".dirty") else f"{release}+{since}.{commit}"


def for_dpkg(version: str) -> str:
    """0.2.0.dev1 is before 0.2.0, which `~` says to dpkg."""
    return re.sub(r"^([0-9.]*[0-9])\.?(dev|a|b|rc)(?=[0-9])", r"\1~\2", version)


def write_into(tree: Path) -> None:
    """The program in `tree` tells it as its own."""
    source = tree / IN_SOURCE
    source.write_text(LINE.sub(f'__version__ = "{built_version()}"', source.read_text()))


class Untold(Exception):
    """Why git does not say."""


def _git(root: Path, *words: str) -> str:
    # Whoever builds may not be whose checkout it is.
    command = ["git", "-c", "safe.directory=*", "-C", str(root), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise Untold("git is missing") from None
    if done.returncode != 0:
        raise Untold((done.stderr.strip().splitlines() or ["git fails"])[-1])
    return done.stdout.strip()


if __name__ == "__main__":
    print(built_version())
