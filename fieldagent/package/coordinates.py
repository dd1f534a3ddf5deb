"""Degrees as people write them: decimal with a point or comma, or with minutes and seconds."""

from __future__ import annotations

import re

from fieldagent.system.sentence import sentence

# As text: `re` compiles and keeps them when the first is read, and most kits never read one.
_NUMBER = r"([0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)"
_DECIMAL = rf"([+-]?)\s*{_NUMBER}\s*[°º]?"
# Degree, minute and second signs, as keyboards and phones offer them; a blank will do too.
_PARTED = (
    rf"([+-]?)\s*([0-9]{{1,3}})(?:\s*[°º:]\s*|\s+){_NUMBER}\s*(?:['′’´:]\s*|\s+|$)"
    rf"(?:{_NUMBER}\s*(?:\"|″|”|''|′′)?\s*)?"
)
_SIDES = {"N": 1, "S": -1, "E": 1, "W": -1}
"""O is none of them: it is east in German and west in French."""
TEXT_MAX = 64


NEAR_NOWHERE = 1e-4
"""Degrees: 11 m."""


def is_nowhere(latitude: float, longitude: float, blur: float = 0.0) -> bool:
    """Return True at 0, 0, far out at sea. A receiver, radio or phone claims to be there until it
    knows where it is. `blur`: degrees by which the position may be off."""
    return max(abs(latitude), abs(longitude)) < max(NEAR_NOWHERE, blur)


class NoCoordinate(ValueError):
    """The text is none; it says what is read."""

    def __init__(self) -> None:
        super().__init__(
            sentence(
                'must be a number or a string with degrees, such as "47.3769", "47,3769" or'
                ' "47° 22\' 36.8" N"'
            )
        )


def read_degrees(text: str, sides: str) -> float:
    """Return decimal degrees: `47.3769`, `47,3769`, `47° 22.614' N`, `8 32 30 E`, `-122.5`.

    `sides` are the letters that may stand before or behind: `NS` of a latitude, `EW` of a
    longitude. South and west are negative. Raises NoCoordinate.
    """
    plain = text.strip().replace("\u2212", "-").upper()
    if len(plain) > TEXT_MAX:
        raise NoCoordinate
    side = 1
    if plain[:1] in sides and plain:
        side, plain = _SIDES[plain[0]], plain[1:].strip()
    elif plain[-1:] in sides and plain:
        side, plain = _SIDES[plain[-1]], plain[:-1].strip()
    if match := re.fullmatch(_DECIMAL, plain, re.ASCII):
        sign, degrees = match.groups()
        return side * _signed(sign, _decimal(degrees))
    if match := re.fullmatch(_PARTED, plain, re.ASCII):
        sign, whole, minutes, seconds = match.groups()
        parts = [_decimal(minutes), _decimal(seconds or "0")]
        if max(parts) >= 60 or (seconds is not None and not parts[0].is_integer()):
            raise NoCoordinate
        return side * _signed(sign, int(whole) + parts[0] / 60 + parts[1] / 3600)
    raise NoCoordinate


def _decimal(text: str) -> float:
    return float(text.replace(",", "."))


def _signed(sign: str, value: float) -> float:
    return -value if sign == "-" else value
