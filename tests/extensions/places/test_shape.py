"""Circles and polygons on the earth, compared with shapely."""

from __future__ import annotations

from math import asin, atan2, cos, degrees, pi, radians, sin
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapely import affinity
from shapely.geometry import Point as TheirPoint
from shapely.geometry import Polygon as TheirPolygon

from fieldagent.extensions.places.hub import shape
from fieldagent.extensions.places.hub.shape import WrongShape, compute_distance_outside
from fieldagent.package.coordinates import EARTH

DEGREE = EARTH * radians(1)
SQUARE = [[7, 45], [8, 45], [8, 46], [7, 46], [7, 45]]
HOLE = [[7.4, 45.4], [7.4, 45.6], [7.6, 45.6], [7.6, 45.4], [7.4, 45.4]]


def geojson(*rings: Any) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": [*rings]}


def on_earth(longitude: float) -> float:
    return (longitude + 180) % 360 - 180


@st.composite
def stars(draw: st.DrawFn) -> tuple[float, list[tuple[float, float]]]:
    """Return the longitude of a centre, and points around it whose sides do not cross."""
    east = draw(st.sampled_from([0.0, 7.6, 179.5, -179.9, 180.0, -75.0]))
    north = draw(st.floats(-70, 70))
    turns = sorted(draw(st.sets(st.integers(0, 71), min_size=8, max_size=24)) | {0, 24, 48})
    radii = draw(st.lists(st.floats(0.05, 4), min_size=len(turns), max_size=len(turns)))
    around = [
        (east + radius * cos(turn * pi / 36), north + radius * sin(turn * pi / 36))
        for turn, radius in zip(turns, radii, strict=True)
    ]
    return east, [*around, around[0]]


@given(stars(), st.floats(-5, 5), st.floats(-5, 5))
def test_polygon_distance_and_side_agree_with_shapely(
    star: tuple[float, list[tuple[float, float]]], right: float, up: float
) -> None:
    east, points = star
    ours = shape.parse_polygon(geojson([[on_earth(x), y] for x, y in points]))
    # On a map without a special antimeridian.
    theirs, x, y = TheirPolygon(points), east + right, points[0][1] + up
    off = compute_distance_outside(ours, y, on_earth(x))
    flat = affinity.scale(theirs, cos(radians(y)), 1, origin=(x, y))
    edge = flat.exterior.distance(TheirPoint(x, y)) * DEGREE
    assert abs(off) == pytest.approx(edge, rel=1e-6, abs=0.01)
    if edge > 0.01:
        assert (off < 0) is theirs.contains(TheirPoint(x, y))


@given(st.floats(-89, 89), st.floats(-180, 180), st.floats(20, 1_000_000), st.floats(0, 360))
def test_circle_edge_is_at_its_radius(
    north: float, east: float, radius: float, bearing: float
) -> None:
    """The edge is computed by the formula of the sphere (the direct problem)."""
    far, turn, lat = radius / EARTH, radians(bearing), radians(north)
    lat_2 = asin(sin(lat) * cos(far) + cos(lat) * sin(far) * cos(turn))
    lon_2 = radians(east) + atan2(sin(turn) * sin(far) * cos(lat), cos(far) - sin(lat) * sin(lat_2))
    drawn = shape.make_circle(north, east, radius)
    assert compute_distance_outside(
        drawn, degrees(lat_2), on_earth(degrees(lon_2))
    ) == pytest.approx(0, abs=0.5)
    assert compute_distance_outside(drawn, north, east) == pytest.approx(-radius)


@pytest.mark.parametrize(
    ("longitude", "inside"),
    [(179.9, True), (-179.9, True), (180.0, True), (-180.0, True), (178.9, False), (-178, False)],
)
def test_polygon_may_cross_the_antimeridian(longitude: float, inside: bool) -> None:
    fiji = [[179, -18], [-179, -18], [-179, -16], [179, -16], [179, -18]]
    drawn = shape.parse_polygon(geojson(fiji))
    assert (compute_distance_outside(drawn, -17, longitude) < 0) is inside
    assert shape.encode_shape(drawn)["polygon"] == geojson([[float(x), float(y)] for x, y in fiji])
    assert shape.decode_shape(shape.encode_shape(drawn)) == drawn


def test_position_in_a_hole_is_outside() -> None:
    drawn = shape.parse_polygon(geojson(SQUARE, HOLE))
    assert (
        compute_distance_outside(drawn, 45.5, 7.5) > 0 > compute_distance_outside(drawn, 45.2, 7.5)
    )


def test_geojson_feature_and_feature_collection_are_read() -> None:
    feature = {"type": "Feature", "geometry": geojson(SQUARE), "properties": {}}
    whole = shape.parse_polygon({"type": "FeatureCollection", "features": [feature]})
    assert whole == shape.parse_polygon(geojson(SQUARE))


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ([], "the shape is not GeoJSON"),
        (
            {"type": "Point", "coordinates": [7, 45]},
            "the shape is a Point, but a fence must be a Polygon",
        ),
        ({"type": "MultiPolygon"}, "antimeridian from 179 to -179"),
        ({"type": "FeatureCollection", "features": [1, 2]}, "the GeoJSON has 2 Features"),
        ({"type": "Polygon"}, "the Polygon has no coordinates"),
        (geojson(SQUARE[:3]), "the outline must have 4 points or more"),
        (geojson(SQUARE[:4]), "the outline is not closed"),
        (geojson([[7, 91], *SQUARE[1:]]), "latitude of point 1 of the outline must be from -90"),
        (geojson(SQUARE, [*HOLE[:2], [10**400, 45], *HOLE[3:]]), "longitude of point 3 of hole 1"),
        (geojson([[7, "45"], *SQUARE[1:]]), r"point 1 of the outline must be \[longitude, lat"),
        (geojson([[7, 45], [8, 46], [8, 45], [7, 46], [7, 45]]), "from point 1 and from point 3"),
        (geojson([[0, 80], [120, 80], [-120, 80], [0, 80]]), "surrounds a pole"),
        (geojson([[7, 45]] * 501), "501 points, but can have 500"),
    ],
)
def test_invalid_polygon_is_refused_with_the_reason(document: Any, why: str) -> None:
    with pytest.raises(WrongShape, match=why):
        shape.parse_polygon(document)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("45.9,7.6", "is not a circle: use latitude, longitude and metres"),
        ("45.9,7.6,wide", "is not a circle"),
        ("95,7.6,500", "latitude of the centre"),
        ("nan,7.6,500", "latitude of the centre"),
        ("45.9,7.6,5", "the radius must be 20 to 1000000 m"),
        ("45.9,7.6,nan", "the radius must be"),
    ],
)
def test_invalid_circle_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(WrongShape, match=why):
        shape.parse_circle(text)
