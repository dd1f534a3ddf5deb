"""Accept-Language, by RFC 9110, 12.5.4."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.http.headers import choose_language

OURS = ("en", "de", "uk")
CASES = {
    "": "en",
    "*": "en",
    "it": "en",
    "de": "de",
    "DE-ch": "de",
    "it,de;q=0.1": "de",
    "de;q=0.5, uk;q=0.9": "uk",
    "uk, de": "uk",
    "de;q=0, uk;q=0.001": "uk",
    "de;q=2, uk;q=0.5": "uk",
    "de;q=nan, uk;q=0.5": "uk",
    "de;q=x, uk ; q=0.5": "uk",
    "de;level=1": "en",
    ",,;q=1,de": "de",
    "de-CH, de;q=0.9, en;q=0.8": "de",
    ";;;,,q=,\x00": "en",
}


@pytest.mark.parametrize(("accepted", "expected"), CASES.items())
def test_available_language_with_the_greatest_weight_is_chosen(
    accepted: str, expected: str
) -> None:
    assert choose_language(accepted, OURS) == expected


@given(st.text(alphabet="deuk-*;q=,. 01x"))
def test_any_accept_language_header_selects_an_available_language(accepted: str) -> None:
    assert choose_language(accepted, OURS) in OURS
