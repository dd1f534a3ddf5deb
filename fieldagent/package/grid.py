"""Coordinates in UTM, UPS and MGRS, on WGS84: `32T 465356 5247001`, `32T MT 65356 47001`, and at
the poles `B 2088946 2491876`, `BAS 88946 91876`.

Zones, bands and the polar stereographic projection follow NGA.SIG.0012_2.0.0_UTMUPS (2014), letters
of squares NGA.STND.0037 (2014). The transverse Mercator projection uses the series of L. Krueger
(1912) to the fourth order in n, as in C. F. F. Karney, "Transverse Mercator with an accuracy of a
few nanometers" (2011, https://arxiv.org/abs/1002.1417). A kit's page reads the same forms
(`page/grid.js`).
"""

from __future__ import annotations

import re
from math import asin, atan, atan2, cos, cosh, degrees, hypot, pi, sin, sinh, sqrt

from fieldagent.system.lazy_named_tuple import NamedTuple

_RADIUS, _FLATTENING = 6_378_137.0, 1 / 298.257223563
_THIRD_FLATTENING = _FLATTENING / (2 - _FLATTENING)
_ECCENTRICITY = sqrt(_FLATTENING * (2 - _FLATTENING))
_RECTIFYING = (
    _RADIUS / (1 + _THIRD_FLATTENING) * (1 + _THIRD_FLATTENING**2 / 4 + _THIRD_FLATTENING**4 / 64)
)
_BETA = (
    _THIRD_FLATTENING / 2
    - 2 * _THIRD_FLATTENING**2 / 3
    + 37 * _THIRD_FLATTENING**3 / 96
    - _THIRD_FLATTENING**4 / 360,
    _THIRD_FLATTENING**2 / 48 + _THIRD_FLATTENING**3 / 15 - 437 * _THIRD_FLATTENING**4 / 1440,
    17 * _THIRD_FLATTENING**3 / 480 - 37 * _THIRD_FLATTENING**4 / 840,
    4397 * _THIRD_FLATTENING**4 / 161280,
)
_DELTA = (
    2 * _THIRD_FLATTENING
    - 2 * _THIRD_FLATTENING**2 / 3
    - 2 * _THIRD_FLATTENING**3
    + 116 * _THIRD_FLATTENING**4 / 45,
    7 * _THIRD_FLATTENING**2 / 3 - 8 * _THIRD_FLATTENING**3 / 5 - 227 * _THIRD_FLATTENING**4 / 45,
    56 * _THIRD_FLATTENING**3 / 15 - 136 * _THIRD_FLATTENING**4 / 35,
    4279 * _THIRD_FLATTENING**4 / 630,
)
"""Coefficients of the series that converts a conformal latitude into a geodetic latitude."""
_SCALE, _EAST, _SOUTH = 0.9996, 500_000, 10_000_000
_POLAR_SCALE, _POLE = 0.994, 2_000_000

_BANDS = "CDEFGHJKLMNPQRSTUVWX"
_COLUMNS = ("ABCDEFGH", "JKLMNPQR", "STUVWXYZ")
_ROWS = "ABCDEFGHJKLMNPQRSTUV"
_SQUARE, _ROUND = 100_000, 2_000_000
"""Side of a square, and the distance after which row letters repeat, in metres."""
_MARGIN = 1.0
"""Tolerance in degrees: a square may extend beyond its band, and a position just outside a zone may
use that zone."""

_ZONE = re.compile(r"([0-9]{1,2})\s*([C-HJ-NP-X])(?=\s*[A-Z0-9])\s*", re.ASCII)
_POLAR = re.compile(r"([ABYZ])(?=\s*[A-Z0-9])\s*", re.ASCII)
_METRES = re.compile(
    r"([0-9]{6,7}(?:\.[0-9]+)?)\s*M?E?[\s,]+([0-9]{1,8}(?:\.[0-9]+)?)\s*M?N?", re.ASCII
)
_GRID_DIGITS = re.compile(
    r"([A-HJ-NP-Z])\s*([A-HJ-NP-Z])\s*(?:([0-9]{2,10})|([0-9]{1,5})\s+([0-9]{1,5}))", re.ASCII
)


class _PolarLetters(NamedTuple):
    columns: str
    rows: str
    east: int
    """Metres at the start of the first column."""
    north: int


_SOUTHERN = "ABCDEFGHJKLMNPQRSTUVWXYZ"
_NORTHERN = "ABCDEFGHJKLMNP"
_AT_POLES = {
    "A": _PolarLetters("JKLPQRSTUXYZ", _SOUTHERN, 800_000, 800_000),
    "B": _PolarLetters("ABCFGHJKLPQR", _SOUTHERN, _POLE, 800_000),
    "Y": _PolarLetters("RSTUXYZ", _NORTHERN, 1_300_000, 1_300_000),
    "Z": _PolarLetters("ABCFGHJ", _NORTHERN, _POLE, 1_300_000),
}


class NotInGrid(ValueError):
    """Error: the text is not a grid coordinate. The message describes the accepted forms."""

    def __init__(self, text: str) -> None:
        super().__init__(
            f"{text!r} is not a UTM or MGRS position: use 32T 465000 5247000 or 32T MT 65000 47000"
        )


def read_grid(text: str) -> tuple[float, float]:
    """Return the latitude and longitude of a grid coordinate. For MGRS, return the middle of the
    square. Raises NotInGrid if the text has another form.
    """
    typed = text.strip().upper()
    if match := _POLAR.match(typed):
        pole_position = _read_at_pole(match[1], typed[match.end() :])
    elif match := _ZONE.match(typed):
        pole_position = _read_in_zone(int(match[1]), match[2], typed[match.end() :])
    else:
        pole_position = None
    if pole_position is None:
        raise NotInGrid(text)
    return pole_position


def _read_in_zone(zone: int, band: str, digits: str) -> tuple[float, float] | None:
    lowest = 8.0 * _BANDS.index(band) - 80
    highest = 84.0 if band == "X" else lowest + 8
    if not 1 <= zone <= 60:
        return None
    for east, north in _find_metres_in_zone(zone, lowest, digits):
        latitude, longitude = _convert_mercator(zone, east, north)
        in_band = lowest - _MARGIN < latitude < highest + _MARGIN
        if in_band and _can_be_in(zone, latitude, longitude):
            return latitude, longitude
    return None


def _find_metres_in_zone(zone: int, lowest: float, digits: str) -> list[tuple[float, float]]:
    """Return the possible positions of an MGRS square as east and north in metres. There are
    several, because row letters repeat every 2 000 km. On the southern hemisphere, north is
    negative.
    """
    if match := _METRES.fullmatch(digits):
        return [(float(match[1]), float(match[2]) - (_SOUTH if lowest < 0 else 0))]
    square = _find_square_middle(digits, _COLUMNS[(zone - 1) % 3], _ROWS)
    if square is None:
        return []
    east, north = square
    # In zones with an even number, the letters begin five rows lower.
    north += 0 if zone % 2 else 15 * _SQUARE
    return [(east + _SQUARE, north % _ROUND + times * _ROUND) for times in range(-5, 5)]


def _find_square_middle(digits: str, columns: str, rows: str) -> tuple[float, float] | None:
    """Return the middle of an MGRS square as east and north in metres from the square of the first
    letters. Return None if the letters or digits are invalid.
    """
    match = _GRID_DIGITS.fullmatch(digits)
    if match is None or match[1] not in columns or match[2] not in rows:
        return None
    metre_digits = match[3] or ""
    east, north = match[4] or metre_digits[: len(metre_digits) // 2], match[5] or ""
    north = north or metre_digits[len(metre_digits) // 2 :]
    if len(east) != len(north):
        return None
    side = 10 ** (5 - len(east))
    return (
        columns.index(match[1]) * _SQUARE + (int(east) + 0.5) * side,
        rows.index(match[2]) * _SQUARE + (int(north) + 0.5) * side,
    )


def _convert_mercator(zone: int, east: float, north: float) -> tuple[float, float]:
    xi, eta = north / (_SCALE * _RECTIFYING), (east - _EAST) / (_SCALE * _RECTIFYING)
    up, across = xi, eta
    for order, beta in enumerate(_BETA, 1):
        up -= beta * sin(2 * order * xi) * cosh(2 * order * eta)
        across -= beta * cos(2 * order * xi) * sinh(2 * order * eta)
    latitude = _convert_conformal(asin(sin(up) / cosh(across)))
    return latitude, _rotate(6 * zone - 183 + degrees(atan2(sinh(across), cos(up))))


def _can_be_in(zone: int, latitude: float, longitude: float) -> bool:
    offsets = (0.0, -_MARGIN, _MARGIN)
    return any(
        _find_zone(latitude + up, _rotate(longitude + offset)) == zone
        for up in offsets
        for offset in offsets
    )


def _find_zone(latitude: float, longitude: float) -> int:
    """Return the zone. Zones are 6° wide, except around Norway and Svalbard."""
    if 56 <= latitude < 64 and 3 <= longitude < 12:
        return 32
    if latitude >= 72 and 0 <= longitude < 42:
        return next(
            zone for zone, ends in ((31, 9), (33, 21), (35, 33), (37, 42)) if longitude < ends
        )
    return int((longitude + 180) // 6) % 60 + 1


def _read_at_pole(letter: str, digits: str) -> tuple[float, float] | None:
    letters = _AT_POLES[letter]
    if match := _METRES.fullmatch(digits):
        east, north = float(match[1]), float(match[2])
    elif square := _find_square_middle(digits, letters.columns, letters.rows):
        east, north = square[0] + letters.east, square[1] + letters.north
    else:
        return None
    latitude, longitude = _convert_stereographic(
        east - _POLE, north - _POLE, is_south=letter in "AB"
    )
    # The same letters exist on both halves, which meet at the pole's meridian. So check that the
    # position is on the half of `letter`.
    is_at_pole = latitude >= 84 - _MARGIN if letter in "YZ" else latitude <= -80 + _MARGIN
    is_west = east < _POLE
    return (latitude, longitude) if is_at_pole and is_west == (letter in "AY") else None


def _convert_stereographic(east: float, north: float, *, is_south: bool) -> tuple[float, float]:
    """Return latitude and longitude in degrees. `east` and `north` are distances from the pole in
    metres.
    """
    flattened = sqrt(
        (1 + _ECCENTRICITY) ** (1 + _ECCENTRICITY) * (1 - _ECCENTRICITY) ** (1 - _ECCENTRICITY)
    )
    tangent = hypot(east, north) * flattened / (2 * _RADIUS * _POLAR_SCALE)
    latitude = _convert_conformal(pi / 2 - 2 * atan(tangent))
    if is_south:
        return -latitude, degrees(atan2(east, north))
    return latitude, degrees(atan2(east, -north))


def _convert_conformal(chi: float) -> float:
    return degrees(chi + sum(each * sin(2 * at * chi) for at, each in enumerate(_DELTA, 1)))


def _rotate(longitude: float) -> float:
    return (longitude + 540) % 360 - 180
