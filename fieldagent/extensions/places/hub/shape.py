"""Shapes on the earth: circles, and GeoJSON polygons (RFC 7946). Shapes may cross the antimeridian.

The sides of a polygon are straight on a map of longitude and latitude, as the RFC requires.
Distances are in metres on a sphere, with an error of at most 0.5 %.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from math import cos, hypot, inf, radians, remainder
from typing import Any

from fieldagent.package.coordinates import EARTH, compute_distance
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import sentence

log = logging.getLogger(__name__)

_DEGREE_M = EARTH * radians(1)
"""Metres per degree of latitude."""
POINTS_MAX = 500
RADIUS_LEAST, RADIUS_MOST = 20.0, 1_000_000.0
"""Smallest and largest radius of a circle in metres."""

Point = tuple[float, float]
"""Longitude and latitude in degrees, in GeoJSON's order."""


class WrongShape(ValueError):
    """Error: the shape is invalid. The text contains the error, its place and the fix."""


class Circle(NamedTuple):
    latitude: float
    longitude: float
    radius: float


class Polygon(NamedTuple):
    rings: tuple[tuple[Point, ...], ...]
    """Outer ring, followed by the rings of holes. Each ring ends at its first point. If a ring
    crosses the antimeridian, its longitudes continue beyond 180 degrees."""


Shape = Circle | Polygon


def make_circle(latitude: float, longitude: float, radius: float) -> Circle:
    """Check a circle and return it. Raises WrongShape if the circle is invalid."""
    _check(longitude, latitude, sentence("the centre"))
    if not RADIUS_LEAST <= radius <= RADIUS_MOST:
        raise WrongShape(
            sentence(
                "the radius must be {least} to {most} m, not {radius}",
                least=f"{RADIUS_LEAST:.0f}",
                most=f"{RADIUS_MOST:.0f}",
                radius=f"{radius:g}",
            )
        )
    return Circle(latitude, longitude, radius)


def parse_circle(text: str) -> Circle:
    """Return the circle in a text `LAT,LON,METRES`. Raises WrongShape for any other text."""
    try:
        latitude, longitude, radius = (float(each) for each in text.split(","))
    except ValueError:
        raise WrongShape(
            sentence(
                (
                    "{text} is not a circle: use latitude, longitude and metres, such as"
                    " 45.91,7.61,500"
                ),
                text=repr(text),
            )
        ) from None
    return make_circle(latitude, longitude, radius)


def parse_polygon(document: Any) -> Polygon:
    """Return the polygon in a GeoJSON document. The document may be a file with one Feature. Raises
    WrongShape if the document has no valid polygon.
    """
    geometry = _find_geometry(document)
    rings = geometry.get("coordinates")
    if not isinstance(rings, list) or not rings:
        raise WrongShape("the Polygon has no coordinates: use an array of rings of points")
    count = sum(len(ring) for ring in rings if isinstance(ring, list))
    if count > POINTS_MAX:
        raise WrongShape(
            sentence(
                "the Polygon has {count} points, but can have {most} at most: simplify it",
                count=count,
                most=POINTS_MAX,
            )
        )
    return _make_polygon(_check_ring(ring, number) for number, ring in enumerate(rings))


def _make_polygon(rings: Iterable[Sequence[Point]]) -> Polygon:
    """Return a polygon whose sides span at most 180 degrees of longitude. The longitudes of holes
    are shifted by 360 degrees if necessary, so that they match the outer ring.
    """
    outer, *holes = map(_unroll, rings)
    middle = _compute_middle(outer)
    return Polygon((outer, *(_move_beside(hole, middle) for hole in holes)))


def encode_shape(shape: Shape) -> dict[str, Any]:
    """Return the shape in the form of the API: `circle`, or `polygon` as GeoJSON."""
    if isinstance(shape, Circle):
        return {"circle": shape._asdict()}
    rings = [
        [[_normalise_longitude(longitude), latitude] for longitude, latitude in ring]
        for ring in shape.rings
    ]
    return {"polygon": {"type": "Polygon", "coordinates": rings}}


def decode_shape(drawing: dict[str, Any]) -> Shape:
    """Return the shape in a result of `encode_shape`. There are no checks, because the shape was
    checked when it was drawn, and because it is parsed for each position.
    """
    if "circle" in drawing:
        return Circle(**drawing["circle"])
    return _make_polygon(
        [(longitude, latitude) for longitude, latitude in ring]
        for ring in drawing["polygon"]["coordinates"]
    )


def load_stored_shape(text: str) -> Shape | None:
    """Return the shape in a JSON text from the database. If the text is damaged, return None and
    log this once, so that one damaged shape does not block other shapes and positions.
    """
    with suppress(ValueError, TypeError, LookupError):
        return decode_shape(json.loads(text))
    _log_damage_once(text)
    return None


def parse_stored_drawing(text: str) -> dict[str, Any]:
    """Return a result of `encode_shape` that was stored as text, or an empty object if the text is
    damaged.
    """
    return json.loads(text) if load_stored_shape(text) is not None else {}


@lru_cache(maxsize=100)
def _log_damage_once(text: str) -> None:
    """Log that the database contains a damaged shape. The same shape is logged only once, because
    of the cache.
    """
    log.error(
        "a shape is damaged in the database, and not used (%d characters: %s): remove its"
        " fence or route, and draw it again",
        *(len(text), ascii(text[:40])),
    )


def compute_distance_outside(shape: Shape, latitude: float, longitude: float) -> float:
    """Return the distance in metres from the shape's edge to a place outside it. The result is
    negative if the place is inside.
    """
    if isinstance(shape, Circle):
        return compute_distance(shape.latitude, shape.longitude, latitude, longitude) - shape.radius
    middle = _compute_middle(shape.rings[0])
    longitude = middle + remainder(longitude - middle, 360.0)
    inside = sum(_is_inside(ring, longitude, latitude) for ring in shape.rings) % 2
    # If a polygon is wider than half the earth, its nearest edge may be in the other direction.
    off = min(
        _compute_edge_distance(ring, longitude + turn, latitude)
        for ring in shape.rings
        for turn in (-360.0, 0.0, 360.0)
    )
    return -off if inside else off


def _find_geometry(document: Any) -> dict[str, Any]:
    """Return the only geometry in a document, which must be a Polygon. Raises WrongShape for any
    other document.
    """
    while isinstance(document, dict) and document.get("type") in ("Feature", "FeatureCollection"):
        if document["type"] == "Feature":
            document = document.get("geometry")
            continue
        features = document.get("features")
        if not isinstance(features, list) or len(features) != 1:
            number = len(features) if isinstance(features, list) else 0
            raise WrongShape(
                sentence(
                    "the GeoJSON has {number} Features: a fence is one Feature, so use a file "
                    "for each",
                    number=number,
                )
            )
        document = features[0]
    if not isinstance(document, dict) or not isinstance(document.get("type"), str):
        raise WrongShape("the shape is not GeoJSON: use an object with the type Polygon")
    if document["type"] == "MultiPolygon":
        raise WrongShape(
            "a fence cannot be a MultiPolygon: make a fence for each part. A Polygon "
            "can cross the antimeridian from 179 to -179"
        )
    if document["type"] != "Polygon":
        raise WrongShape(
            sentence(
                "the shape is a {document}, but a fence must be a Polygon",
                document=document["type"][:40],
            )
        )
    return document


def _check_ring(ring: Any, number: int) -> list[Point]:
    """Check a ring, and return its points unchanged. Raises WrongShape if the ring is invalid."""
    name = sentence("the outline") if number == 0 else sentence("hole {number}", number=number)
    if not isinstance(ring, list) or len(ring) < 4:
        raise WrongShape(
            sentence(
                "{name} must have 4 points or more, and the last must equal the first", name=name
            )
        )
    points = [
        _parse_point(each, sentence("point {at} of {name}", at=at, name=name))
        for at, each in enumerate(ring, 1)
    ]
    if points[0] != points[-1]:
        raise WrongShape(
            sentence("{name} is not closed: its last point must equal its first", name=name)
        )
    laid = _unroll(points)
    if abs(laid[-1][0] - laid[0][0]) > 1:
        raise WrongShape(sentence("{name} surrounds a pole: use a circle there", name=name))
    if (crossed := _find_crossing(laid)) is not None:
        raise WrongShape(
            sentence(
                "{name} crosses itself: its sides from point {first} and from point {second}"
                " meet; draw it without a crossing",
                name=name,
                first=crossed[0],
                second=crossed[1],
            )
        )
    return points


def _unroll(ring: Sequence[Point]) -> tuple[Point, ...]:
    """Return the ring with longitudes beyond 180 degrees if necessary. Each side then goes in the
    shorter direction.
    """
    laid = [ring[0]]
    for longitude, latitude in ring[1:]:
        before = laid[-1][0]
        laid.append((before + remainder(longitude - before, 360.0), latitude))
    if abs(laid[-1][0] - laid[0][0]) <= 1:
        laid[-1] = laid[0]  # Equal except for rounding.
    return tuple(laid)


def _parse_point(value: Any, name: str) -> Point:
    numbers = isinstance(value, list) and len(value) >= 2
    if not numbers or any(
        isinstance(each, bool) or not isinstance(each, int | float) for each in value[:2]
    ):
        raise WrongShape(sentence("{name} must be [longitude, latitude]", name=name))
    longitude, latitude = value[:2]
    _check(longitude, latitude, name)
    return float(longitude), float(latitude)


def _check(longitude: float, latitude: float, name: str) -> None:
    for value, limit, axis in (
        (latitude, 90, sentence("latitude")),
        (longitude, 180, sentence("longitude")),
    ):
        if not -limit <= value <= limit:
            text = str(value)[:20]
            raise WrongShape(
                sentence(
                    "{axis} of {name} must be from -{limit} to {limit}, not {told}",
                    axis=axis,
                    name=name,
                    limit=limit,
                    told=text,
                )
            )


def _find_crossing(ring: Sequence[Point]) -> tuple[int, int] | None:
    """Return the first two sides that cross each other, by the numbers of their first points,
    counted from 1. Return None if no sides cross.
    """
    sides = [*pairwise(ring)]
    for index, (a, b) in enumerate(sides):
        for other in range(index + 2, len(sides)):
            c, d = sides[other]
            if min(a[0], b[0]) > max(c[0], d[0]) or max(a[0], b[0]) < min(c[0], d[0]):
                continue
            apart = _compute_side(a, b, c) * _compute_side(a, b, d) < 0
            if apart and _compute_side(c, d, a) * _compute_side(c, d, b) < 0:
                return index + 1, other + 1
    return None


def _compute_side(a: Point, b: Point, c: Point) -> float:
    """Return a number whose sign shows on which side of the line from `a` to `b` the point `c`
    is.
    """
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _compute_middle(ring: Sequence[Point]) -> float:
    """Return the longitude half-way between the west end and the east end of a ring."""
    east = [longitude for longitude, _ in ring]
    return (min(east) + max(east)) / 2


def _move_beside(ring: tuple[Point, ...], middle: float) -> tuple[Point, ...]:
    """Return a hole with its longitudes shifted by 360 degrees if necessary, so that they match the
    outer ring.
    """
    own = _compute_middle(ring)
    turn = middle + remainder(own - middle, 360.0) - own
    return tuple((longitude + turn, latitude) for longitude, latitude in ring)


def _is_inside(ring: Sequence[Point], x: float, y: float) -> bool:
    """Return True if the point is in the ring. A line from such a point to the east crosses the
    ring an odd number of times.
    """
    odd = False
    for (x1, y1), (x2, y2) in pairwise(ring):
        if (y1 > y) != (y2 > y) and x < x1 + (y - y1) / (y2 - y1) * (x2 - x1):
            odd = not odd
    return odd


def _compute_edge_distance(ring: Sequence[Point], x: float, y: float) -> float:
    """Return the distance in metres to the nearest side. It is measured on a flat map that is exact
    at the point.
    """
    scale = cos(radians(y))
    nearest = inf
    for (x1, y1), (x2, y2) in pairwise(ring):
        ax, ay, bx, by = (x1 - x) * scale, y1 - y, (x2 - x) * scale, y2 - y
        dx, dy = bx - ax, by - ay
        length = dx * dx + dy * dy
        along = 0.0 if length == 0 else max(0.0, min(1.0, -(ax * dx + ay * dy) / length))
        nearest = min(nearest, hypot(ax + along * dx, ay + along * dy))
    return nearest * _DEGREE_M


def _normalise_longitude(longitude: float) -> float:
    """Return the longitude of the same place in the range from -180 to 180 degrees."""
    return longitude if -180 <= longitude <= 180 else remainder(longitude, 360.0)
