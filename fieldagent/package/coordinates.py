"""Positions, degrees in the forms that people write (decimal with a point or comma, or with minutes
and seconds), and the distance between two places.
"""

from __future__ import annotations

import re
from math import asin, cos, radians, sin, sqrt

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import sentence

# Keep the patterns as text: `re` compiles them at first use, and most kits never use them.
_NUMBER = r"([0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)"
_DECIMAL = rf"([+-]?)\s*{_NUMBER}\s*[°º]?"
# Degree, minute and second signs, as keyboards and phones offer them. Spaces are also accepted.
_DEGREES_MINUTES_SECONDS = (
    rf"([+-]?)\s*([0-9]{{1,3}})(?:\s*[°º:]\s*|\s+){_NUMBER}\s*(?:['′’´:]\s*|\s+|$)"
    rf"(?:{_NUMBER}\s*(?:\"|″|”|''|′′)?\s*)?"
)
_SIGN_BY_SIDE = {"N": 1, "S": -1, "E": 1, "W": -1}
"""Sides of the compass. O is missing, because it means east in German and west in French."""
TEXT_MAX = 64


ZERO_TOLERANCE_DEGREES = 1e-4
"""Largest latitude and longitude, in degrees (11 m), at which a position counts as 0, 0."""


def is_zero_position(latitude: float, longitude: float, blur: float = 0.0) -> bool:
    """Return True if the position is 0, 0. This place is far out at sea, and receivers, radios and
    phones report it until they know their real position. `blur` is the possible error of the
    position in degrees.
    """
    return max(abs(latitude), abs(longitude)) < max(ZERO_TOLERANCE_DEGREES, blur)


class DatedPlace(NamedTuple):
    """A position with its time."""

    latitude: float
    longitude: float
    at: float
    """Unix time of the position, by the kit's clock."""
    accuracy: float = 0.0
    """Metres by which the position may be wrong, or 0 if this is unknown."""


class NoCoordinate(ValueError):
    """Error: the text is not a coordinate. The message lists the accepted forms."""

    def __init__(self) -> None:
        super().__init__(
            sentence(
                'must be a number or a string with degrees, such as "47.3769", "47,3769" or'
                ' "47° 22\' 36.8" N"'
            )
        )


def read_degrees(text: str, side_letters: str) -> float:
    """Parse degrees such as `47.3769`, `47,3769`, `47° 22.614' N`, `8 32 30 E` or `-122.5`, and
    return decimal degrees.

    `side_letters` contains the letters that may be before or after the number: `NS` for a latitude,
    `EW` for a longitude. South and west are negative. Raises NoCoordinate if the text has another
    form.
    """
    plain = text.strip().replace("\u2212", "-").upper()
    if len(plain) > TEXT_MAX:
        raise NoCoordinate
    side = 1
    if plain[:1] in side_letters and plain:
        side, plain = _SIGN_BY_SIDE[plain[0]], plain[1:].strip()
    elif plain[-1:] in side_letters and plain:
        side, plain = _SIGN_BY_SIDE[plain[-1]], plain[:-1].strip()
    if match := re.fullmatch(_DECIMAL, plain, re.ASCII):
        sign, degrees = match.groups()
        return side * _apply_sign(sign, parse_decimal(degrees))
    if match := re.fullmatch(_DEGREES_MINUTES_SECONDS, plain, re.ASCII):
        sign, degrees_text, minutes, seconds = match.groups()
        parts = [parse_decimal(minutes), parse_decimal(seconds or "0")]
        if max(parts) >= 60 or (seconds is not None and not parts[0].is_integer()):
            raise NoCoordinate
        return side * _apply_sign(sign, int(degrees_text) + parts[0] / 60 + parts[1] / 3600)
    raise NoCoordinate


def parse_decimal(text: str) -> float:
    """Return the number in a text with a decimal point or comma. Raises ValueError."""
    return float(text.replace(",", "."))


def _apply_sign(sign: str, value: float) -> float:
    return -value if sign == "-" else value


EARTH = 6_371_008.8
"""Mean radius of the earth in metres (IUGG)."""


def compute_distance(
    latitude: float, longitude: float, latitude_2: float, longitude_2: float
) -> float:
    """Return the metres between two places in degrees, along a great circle (haversine)."""
    north, east = radians(latitude_2 - latitude), radians(longitude_2 - longitude)
    across = cos(radians(latitude)) * cos(radians(latitude_2)) * sin(east / 2) ** 2
    return 2 * EARTH * asin(min(1.0, sqrt(sin(north / 2) ** 2 + across)))
