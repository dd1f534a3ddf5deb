"""The signed text of a program, minisign's trusted comment, as `build/sign` writes it:

    fieldagent program 0.2.0, signed 2026-11-23, expires 2027-02-21

So the signature of the file also authenticates the kind, the version and the expiry date.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

from fieldagent.system.clock_bounds import EARLIEST_TIME
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.minisign import NotSigned

PROGRAM, DELTA, SYSTEM = "program", "delta", "system"
"""Kinds of signed files. A delta makes a program from the installed program
(`system.program_delta`). A system is everything that a card boots (`system.system_image`)."""
_FORM = re.compile(
    r"fieldagent ([a-z]+) ([0-9a-zA-Z.+~-]+),"
    r" signed (\d{4}-\d\d-\d\d), expires (\d{4}-\d\d-\d\d)",
    re.ASCII,
)


class Release(NamedTuple):
    kind: str
    version: str
    signed: date
    expires: date
    """Last day, in UTC, on which the release may be installed."""


def parse_release(comment: str) -> Release:
    """Parse the trusted comment of a release: its kind, version, day of signing and expiry. Raises
    NotSigned if the comment has another form.
    """
    match = _FORM.fullmatch(comment)
    if match is None:
        raise NotSigned(
            "the signed text has no kind, version and expiry: sign the file with build/sign"
        )
    kind, version, *days = match.groups()
    try:
        signed, expires = map(date.fromisoformat, days)
    except ValueError as wrong:
        raise NotSigned(f"the signed text has no date: {wrong}") from None
    return Release(kind, version, signed, expires)


def check_release(comment: str, now: float) -> Release:
    """Return the release in the trusted comment `comment` of a program. Raises NotSigned if the
    program may not be installed at `now` (Unix time).
    """
    return check_release_as(PROGRAM, comment, now)


def check_release_as(kind: str, comment: str, now: float) -> Release:
    """Return the release in the trusted comment of a file of `kind`. Raises NotSigned if the kind
    differs, or if the release has expired at `now` (Unix time). A kit whose clock shows 1970 cannot
    check the expiry.
    """
    release = parse_release(comment)
    if release.kind != kind:
        raise NotSigned(f"the signature is for a {release.kind} of fieldagent, not a {kind}")
    if now >= EARLIEST_TIME and datetime.fromtimestamp(now, UTC).date() > release.expires:
        raise NotSigned(
            f"the signature expired on {release.expires}: check this machine's date, or "
            f"ask the builder to sign the file again with build/sign"
        )
    return release
