"""Positions as documents: problems for readers of KML."""

from __future__ import annotations

from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest

from fieldagent.package.package import Location
from fieldagent.package.payload import Identity
from fieldagent.package.tracks import PlacedPoint, make_kml

ADA = Identity("1", "Ada & Co", "User", "", "1")


@pytest.mark.parametrize(
    ("heights", "line"),
    [
        ((400.0, 410.5), "7.0000000,46.0000000,400.0 7.0000000,46.0000000,410.5"),
        ((None, 410.5), "7.0000000,46.0000000 7.0000000,46.0000000"),
        ((400.0, None), "7.0000000,46.0000000 7.0000000,46.0000000"),
    ],
)
def test_kml_line_has_heights_for_all_its_points_or_none(
    heights: tuple[float | None, ...], line: str
) -> None:
    """Some readers drop a line if only some of its points have a height."""
    points = [
        PlacedPoint(str(at), ADA, "kit", datetime(2026, 5, 4, 10, at, tzinfo=UTC), place)
        for at, place in enumerate(Location(46.0, 7.0, None, height) for height in heights)
    ]
    texts = [each.text for each in ElementTree.fromstring(make_kml(points)).iter() if each.text]
    assert line in texts
