"""Parses a position that people type after a command: degrees, or a grid reference."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fieldagent.kit.local_http import CallFailed
from fieldagent.system.exit_codes import USAGE
from fieldagent.system.lazy_named_tuple import NamedTuple

DECIMALS = 6
"""Decimals of degrees from a grid reference. The last decimal is 11 cm. The best precision of MGRS
is a metre."""
_GRID_WORDS = 4
"""Number of words in the longest reference: zone, square and metres separately."""
_MAY_BE_GRID = re.compile(r"([0-9]{1,2}\s*[A-Z]|[ABYZ])\s*([A-Z]{2}|[0-9]{6})", re.I | re.ASCII)
_FORM = "use LATITUDE LONGITUDE, such as 47.3769 8.5417"
_PAIR = re.compile(r"([-+]?[0-9.]+),([-+]?[0-9.]+)", re.ASCII)


class TypedPosition(NamedTuple):
    latitude: str | float
    longitude: str | float
    remaining_words: Sequence[str]
    """Words after the position."""

    def get_degrees(self) -> dict[str, str | float]:
        """Return the position as members of an item in JSON. Typed degrees are kept as text."""
        return {"latitude": self.latitude, "longitude": self.longitude}


def read_place(words: Sequence[str]) -> TypedPosition:
    """Return the position at the beginning of the words. Degrees are kept as typed, because the
    receiver parses them. Raises CallFailed if the words do not begin with a position.
    """
    words = _split_words(words)
    if _MAY_BE_GRID.match(" ".join(words)):
        return _read_in_grid(words)
    if len(words) < 2 and not any(each.isdigit() for each in words[0]):
        raise CallFailed(f"{words[0]!r} is not a position; {_FORM}", USAGE)
    if len(words) < 2:
        raise CallFailed(f"{words[0]!r} is only a latitude: add the longitude", USAGE)
    return TypedPosition(words[0], words[1], words[2:])


def _split_words(words: Sequence[str]) -> Sequence[str]:
    """Return the words, with a blank instead of the comma in `46.5,7.25` or `46.5, 7.25`. The
    commas in `46,5 7,25` are kept, because they are decimal commas.
    """
    words = " ".join(words).split() or words
    first = words[0]
    pair = _PAIR.fullmatch(first)
    if pair and ("." in first or len(words) == 1):
        return [*pair.groups(), *words[1:]]
    return [first.removesuffix(","), *words[1:]]


def _read_in_grid(words: Sequence[str]) -> TypedPosition:
    # Import it only here, because few people type such references.
    from fieldagent.package.grid import NotInGrid, read_grid

    longest = min(len(words), _GRID_WORDS)
    wrong = None
    for count in range(longest, 0, -1):
        try:
            latitude, longitude = read_grid(" ".join(words[:count]))
        except NotInGrid as error:
            wrong = wrong or error
        else:
            return TypedPosition(
                round(latitude, DECIMALS), round(longitude, DECIMALS), words[count:]
            )
    raise CallFailed(str(wrong), USAGE)


def read_only_place(words: Sequence[str]) -> TypedPosition:
    """Return the position, if all words belong to it. Raises CallFailed if the words are not
    exactly a position.
    """
    typed = read_place(words)
    if typed.remaining_words:
        raise CallFailed(f"{typed.remaining_words[0]!r} is not part of a position; {_FORM}", USAGE)
    return typed
