"""How far two places are apart, on a sphere: 0.5 % of it at most is wrong for that."""

from __future__ import annotations

from math import asin, cos, radians, sin, sqrt

EARTH = 6_371_008.8
"""Metres: the mean radius (IUGG)."""


def distance(latitude: float, longitude: float, latitude_2: float, longitude_2: float) -> float:
    """Return the metres between two places in degrees, along a great circle (haversine)."""
    north, east = radians(latitude_2 - latitude), radians(longitude_2 - longitude)
    across = cos(radians(latitude)) * cos(radians(latitude_2)) * sin(east / 2) ** 2
    return 2 * EARTH * asin(min(1.0, sqrt(sin(north / 2) ** 2 + across)))
