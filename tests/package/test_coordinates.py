"""Degrees as people write them, and invalid ones."""

from __future__ import annotations

import pytest

from fieldagent.package.coordinates import NoCoordinate, read_degrees

READ = {
    "47.3769": 47.3769,
    "47,3769": 47.3769,
    " 9 ": 9.0,
    "-33.5": -33.5,
    "−33,5": -33.5,
    "47° 22' 36.84\" N": 47.3769,
    "47°22′36,84″": 47.3769,
    "47 22 36.84": 47.3769,
    "47° 22.614' N": 47.3769,
    "N 47 22,614": 47.3769,
    "S33.5": -33.5,
    "33.5 s": -33.5,
    "47:22:36.84": 47.3769,
}
"""Latitudes and their decimal degrees."""


@pytest.mark.parametrize("text", READ)
def test_degrees_are_read_in_common_notations(text: str) -> None:
    assert read_degrees(text, "NS") == pytest.approx(READ[text], abs=1e-9)


def test_hemisphere_must_match_its_axis() -> None:
    assert read_degrees("8 32 30 W", "EW") == pytest.approx(-8.5416667)
    for wrong in ("8 32 30 W", "8 Ost", "8 O"):
        with pytest.raises(NoCoordinate):
            read_degrees(wrong, "NS")


@pytest.mark.parametrize(
    "text",
    ["", "N", "north", "47 61", "47 22 61", "47 22.5 30", "1 2 3 4", "0x10", "1e3", "1" * 65, "٤٧"],
)
def test_invalid_degrees_are_refused(text: str) -> None:
    with pytest.raises(NoCoordinate, match="such as"):
        read_degrees(text, "NS")
