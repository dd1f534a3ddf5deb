"""The signed text beside a program, and the time in which it is valid."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from fieldagent.system.minisign import NotSigned
from fieldagent.system.signed_release import Release, check_release, parse_release

TEXT = "fieldagent program 0.2.0, signed 2026-11-23, expires 2027-02-21"
NOTHING = "has no kind, version and expiry"


def at(*moment: int) -> float:
    return datetime(*moment, tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc]


def test_signed_comment_is_read_as_version_and_validity() -> None:
    release = Release("program", "0.2.0", date(2026, 11, 23), date(2027, 2, 21))
    assert parse_release(TEXT) == release
    # The last day is included, and a kit with an unset clock cannot check it.
    for moment in ((2026, 11, 23), (2027, 2, 21, 23, 59), (1970, 1, 1)):
        assert check_release(TEXT, at(*moment)) == release


@pytest.mark.parametrize(
    ("text", "moment", "reason"),
    [
        (TEXT, (2027, 2, 22), "the signature expired on 2027-02-21"),
        (TEXT.replace("program", "settings"), (2026, 12, 1), "the signature is for a settings"),
        (TEXT + " ", (2026, 12, 1), NOTHING),
        (TEXT.replace("0.2.0", "0.2.0\x1b[2J"), (2026, 12, 1), NOTHING),
        (TEXT.replace("2027", "२०२७"), (2026, 12, 1), NOTHING),
        (TEXT.replace("02-21", "02-30"), (2026, 12, 1), "has no date"),
        ("", (2026, 12, 1), NOTHING),
    ],
)
def test_invalid_or_expired_release_is_refused_with_the_reason(
    text: str, moment: tuple[int, ...], reason: str
) -> None:
    with pytest.raises(NotSigned, match=reason):
        check_release(text, at(*moment))
