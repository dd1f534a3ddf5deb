from __future__ import annotations

import pytest

from fieldagent.http.headers import format_date, parse_date, parse_delay


@pytest.mark.parametrize("second", [0, 784_111_777, 1_790_000_000, 4_102_444_799])
def test_written_date_is_read_unchanged(second: int) -> None:
    assert parse_date(format_date(second).decode()) == second


@pytest.mark.parametrize(
    ("text", "second"),
    [
        ("Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_800),
        ("Thu, 31 Apr 2026 00:00:00 GMT", 1_777_593_600),
        ("Thu, 29 Feb 2024 12:30:05 GMT", 1_709_209_805),
    ],
)
def test_leap_second_and_nonexistent_day_are_read_as_the_next(text: str, second: int) -> None:
    assert parse_date(text) == second


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "Sun Nov  6 08:49:37 1994",
        "Sun, 06 Nix 1994 08:49:37 GMT",
        "Sun, 00 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 28:49:37 GMT",
        "Sun, 06 Nov 0000 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT ",
    ],
)
def test_invalid_date_is_read_as_none(text: str) -> None:
    assert parse_date(text) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("120", 120), ("", None), ("-1", None), ("²", None)],
)
def test_retry_delay_is_read_in_seconds(text: str, seconds: float | None) -> None:
    assert parse_delay(text) == seconds
