"""Computes the distance between two places on a sphere. The error of this approximation is at most
0.5 %.
"""

from __future__ import annotations

from math import asin, cos, radians, sin, sqrt

EARTH = 6_371_008.8
"""Mean radius of the earth in metres (IUGG)."""


def compute_distance(
    latitude: float, longitude: float, latitude_2: float, longitude_2: float
) -> float:
    """Return the metres between two places in degrees, along a great circle (haversine)."""
    north, east = radians(latitude_2 - latitude), radians(longitude_2 - longitude)
    across = cos(radians(latitude)) * cos(radians(latitude_2)) * sin(east / 2) ** 2
    return 2 * EARTH * asin(min(1.0, sqrt(sin(north / 2) ** 2 + across)))
