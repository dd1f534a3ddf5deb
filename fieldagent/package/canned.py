"""Canned texts: the most common texts about an SOS.

Messages between kits and the hub contain the number of such a text, one or two bytes, instead of
the text (`docs/reference/on-air.md`, "Canned words"). The number of a text never changes.
"""

from __future__ import annotations

import re

TEXT_BY_NUMBER = {
    0: "SOS",
    1: "injury",
    2: "medical",
    3: "lost",
    4: "vehicle",
    5: "fire",
    6: "avalanche",
    7: "stuck",
    8: "person missing",
    9: "yes",
    10: "no",
    11: "understood",
    12: "on our way to you",
    13: "we stay where we are",
    14: "we can walk",
    15: "we cannot walk",
    16: "it is getting worse",
    17: "help is on its way",
    18: "stay where you are",
    19: "call us",
    20: "how many are injured?",
    21: "can you walk?",
    22: "send your position",
    23: "make yourselves seen",
    24: "nobody is injured",
    25: "one is injured",
    26: "two are injured",
    27: "three are injured",
    28: "more than three are injured",
    29: "unconscious",
    30: "bleeding",
    31: "cold and wet",
    32: "no water or food",
    33: "we see you",
    34: "we hear you",
    35: "battery is low",
    36: "a helicopter can land here",
    37: "no helicopter can land here",
    38: "what has happened?",
    39: "are all of you together?",
    40: "can a helicopter land?",
    41: "a helicopter is coming",
    42: "a team is coming on foot",
    43: "no helicopter in this weather",
    44: "help needs more than an hour",
    45: "help needs until tomorrow",
    46: "go to shelter",
    47: "go down",
    48: "keep warm and dry",
    49: "save your battery",
    50: "is it still an emergency?",
}
"""Texts by their numbers. A number up to 23 takes one byte, a number up to 255 two bytes."""


def _read_catalogue_texts(*numbers: int) -> tuple[str, ...]:
    return tuple(TEXT_BY_NUMBER[number] for number in numbers)


SOS_REASONS = _read_catalogue_texts(*range(1, 9))
"""Short reasons of an SOS."""
KIT_TEXTS = _read_catalogue_texts(9, 10, 11, *range(13, 17), *range(24, 38))
"""Answers of the people in distress."""
HELPER_TEXTS = _read_catalogue_texts(12, 17, 18, 11, 33, 34, 20, 21, 22, 23)
"""Texts from a person at another kit."""
DESK_TEXTS = _read_catalogue_texts(*range(17, 24), *range(38, 51), 11)
"""Texts from a dispatcher at the hub."""

NUMBER_MAX = 255
_NUMBER_BY_TEXT = {words: number for number, words in TEXT_BY_NUMBER.items()}
_LATER_TEXT = re.compile(r"canned words (\d{1,3})", re.ASCII)


def find_number(text: str) -> int | None:
    """Return the number of the canned text that is equal to `text`, or None if `text` is not a
    canned text.
    """
    known_number = _NUMBER_BY_TEXT.get(text)
    if known_number is None and (later_match := _LATER_TEXT.fullmatch(text)):
        number = int(later_match[1])
        # Recognise the texts that `get_text` makes for unknown numbers, so that a relayed message
        # keeps the number.
        known_number = number if number <= NUMBER_MAX and text == get_text(number) else None
    return known_number


def get_text(number: int) -> str:
    """Return the text of a number. For an unknown number of a later version, return a text that
    contains the number.
    """
    return TEXT_BY_NUMBER.get(number, f"canned words {number}")
