"""Grid references, compared with third-party libraries and published tables."""

from __future__ import annotations

import random
from math import asin, cos, degrees, dist, radians, sin

import mgrs
import pytest
import utm

from fieldagent.package.grid import NotInGrid, read_grid

RADIUS = 6_378_137
CORNER = 0.72
"""Distance from the centre of a square to its corner, in sides."""


def compute_distance(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Return metres through the earth: at the poles, degrees of longitude have no length."""
    return RADIUS * dist(_above(*one), _above(*other))


def _above(latitude: float, longitude: float) -> tuple[float, float, float]:
    phi, across = radians(latitude), radians(longitude)
    return cos(phi) * cos(across), cos(phi) * sin(across), sin(phi)


def make_places() -> list[tuple[float, float]]:
    """Return places of the whole earth by area, and places where the grids are irregular."""
    made = random.Random(34)
    places = [(degrees(asin(made.uniform(-1, 1))), made.uniform(-180, 180)) for _ in range(1500)]
    places += [(made.uniform(84, 90), made.uniform(-180, 180)) for _ in range(200)]
    places += [(made.uniform(-90, -80), made.uniform(-180, 180)) for _ in range(200)]
    places += [(0, 0), (-1e-5, 0), (0, 180 - 1e-6), (45, 179.9999), (45, -179.9999), (-79.999, 6)]
    places += [(83.999, 41.99), (56, 3), (55.999, 5.99), (63.9999, 11.999), (72, 0), (83.9, 20.9)]
    return [*places, (64, 6.0001), (72, 33), (84.001, 0.001), (-80.001, -0.001), (89.9999, 90)]


def test_mgrs_squares_are_read_as_by_another_library() -> None:
    others = mgrs.MGRS()
    for latitude, longitude in make_places():
        for digits in range(1, 6):
            text = others.toMGRS(latitude, longitude, MGRSPrecision=digits)
            distance = compute_distance(read_grid(text), (latitude, longitude))
            # Libraries differ by less than a metre.
            assert distance < 10 ** (5 - digits) * CORNER + 0.6, text


def test_utm_metres_are_read_as_by_another_library() -> None:
    for latitude, longitude in make_places():
        if -80 <= latitude < 84:
            easting, northing, zone, band = utm.from_latlon(latitude, longitude)
            text = f"{zone}{band} {easting:.3f} {northing:.3f}"
            assert compute_distance(read_grid(text), (latitude, longitude)) < 0.005, text


@pytest.mark.parametrize(
    ("text", "latitude", "longitude"),
    [
        # GeoConvert(1) of GeographicLib, its own examples.
        ("38S 444140.54 3684706.36", 33.3, 44.4),
        ("38SMB4414084706", 33.3, 44.4),
        ("38s mb 44140 84706", 33.3, 44.4),
        # The CN Tower, by Wikipedia's "Universal Transverse Mercator coordinate system".
        ("17T 630084mE 4833438mN", 43.642567, -79.387139),
        # Both poles, where all meridians meet.
        ("Z 2000000 2000000", 90, 0),
        ("B 2000000, 2000000", -90, 0),
    ],
)
def test_published_grid_references_are_read(text: str, latitude: float, longitude: float) -> None:
    assert compute_distance(read_grid(text), (latitude, longitude)) < 1


@pytest.mark.parametrize(
    "text",
    [
        *("61T MT 65 47", "0T MT 65 47", "32T MI 65 47", "32T AT 65 47", "32N 465000 5247000"),
        *("32T MT 650 47", "32T MT 65004", "32T 465000", "32TMT", "18S XG 1", "32T MW 65 47"),
        *("Z JA 1 1", "ZAZ 11", "A KA", "Z 1999999 2000000", "B 3200000 3200000", "Z 47.5 8.5"),
        *("47.3769", "47° 22' 36.8\" N", "8 32 30 E", "", "3٤T MT 65 47"),
    ],
)
def test_invalid_grid_reference_is_refused(text: str) -> None:
    with pytest.raises(NotInGrid, match="use 32T 465000 5247000"):
        read_grid(text)
