"""Order of versions, and the check that a version may replace another version."""

from __future__ import annotations

import re

from fieldagent.extensions.fleet.fetching import UpdateRefused


def check_newer(now: str, next_: str, *, older_too: bool) -> None:
    """Check that `next_` is newer than `now`. If `older_too` is True, any version is allowed.
    Raises UpdateRefused if the version is not newer.
    """
    if older_too or make_sort_key(next_) > make_sort_key(now):
        return
    relation = "is already running" if next_ == now else f"is older than {now}, which runs"
    raise UpdateRefused(f"{next_} {relation}: --older installs it anyway")


STAGES = ("dev", "a", "b", "rc", None)
"""Stages before a release, in order (PEP 440)."""


def make_sort_key(version: str) -> tuple[tuple[int, ...], int, int, int]:
    """Return the sort key of a version. For example, 0.2.0.dev1 comes before 0.2.0.
    0.2.0+1.g1a2b3c4d, which is one commit later, comes after 0.2.0. Raises UpdateRefused if the
    text is not a version.
    """
    form = r"([0-9]+(?:\.[0-9]+)*)(?:\.?(dev|a|b|rc)([0-9]*))?(?:\+([0-9]+)(?![^.]))?"
    match = re.match(form, version, re.ASCII)
    if match is None:
        raise UpdateRefused(f"{version!r} is not a version of fieldagent")
    release, stage, number, since = match.groups()
    numbers = tuple(int(each) for each in release.split("."))
    return numbers, STAGES.index(stage), int(number or 0), int(since or 0)
