"""Positions as people type them after a command."""

from __future__ import annotations

import pytest

from fieldagent.cli.place import read_place


@pytest.mark.parametrize(
    ("words", "latitude", "longitude", "rest"),
    [
        (["46.5", "7.25"], "46.5", "7.25", []),
        (["46.5,7.25"], "46.5", "7.25", []),
        (["46.5,", "7.25"], "46.5", "7.25", []),
        (["46.5, 7.25"], "46.5", "7.25", []),
        (["46,7"], "46", "7", []),
        (["-46.5,-7.25", "leg", "broken"], "-46.5", "-7.25", ["leg", "broken"]),
        # These commas are decimal.
        (["46,5", "7,25"], "46,5", "7,25", []),
        (["32T", "MT", "65000", "47000"], 47.0, 9.0, []),
    ],
)
def test_position_is_read_with_commas_and_spaces(
    words: list[str], latitude: str | float, longitude: str | float, rest: list[str]
) -> None:
    place = read_place(words)
    if isinstance(latitude, float):
        assert (round(float(place.latitude)), round(float(place.longitude))) == (47, 9)
    else:
        assert (place.latitude, place.longitude) == (latitude, longitude)
    assert [*place.remaining_words] == rest
