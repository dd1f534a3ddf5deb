"""Alphabets of an SMS: GSM 7 bit with its extension (3GPP TS 23.038, 6.2.1), or UCS2.

A message has 140 octets: 160 septets, or 70 characters of UCS2 (16 bits each). In each part of a
longer message, a header takes six octets: 153 septets or 67 characters remain (TS 23.040,
9.2.3.24).
"""

from __future__ import annotations

from enum import Enum

from fieldagent.wire.errors import RemoteProtocolError

BASIC_CHARACTERS = (
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞ\x1bÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
"""The 128 characters of the GSM alphabet by their numbers. 0x1B starts an extension character."""
ESCAPE = 0x1B
EXTENSION = {
    0x0A: "\f",
    0x14: "^",
    0x28: "{",
    0x29: "}",
    0x2F: "\\",
    0x3C: "[",
    0x3D: "~",
    0x3E: "]",
    0x40: "|",
    0x65: "€",
}
_CODES = {
    character: bytes([code]) for code, character in enumerate(BASIC_CHARACTERS) if code != ESCAPE
}
_CODES |= {character: bytes([ESCAPE, code]) for code, character in EXTENSION.items()}


class Alphabet(Enum):
    """Encoding of text. The value is the data coding scheme (TS 23.038, 4)."""

    GSM7 = 0x00
    UCS2 = 0x08


UNITS_PER_MESSAGE = {Alphabet.GSM7: 160, Alphabet.UCS2: 70}
"""Maximum septets, or 16-bit units, of a text in one message."""
PART = {Alphabet.GSM7: 153, Alphabet.UCS2: 67}
"""Maximum septets, or 16-bit units, of each part of a longer text."""


def choose_alphabet(text: str) -> Alphabet:
    """Return the smaller alphabet that contains every character of `text`."""
    return Alphabet.GSM7 if all(each in _CODES for each in text) else Alphabet.UCS2


_TYPOGRAPHY = str.maketrans(
    {"\u00a0": " ", "’": "'", "‘": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"'}
    | {"–": "-", "—": "-", "…": "..."}
)


def replace_typography(text: str) -> str:
    """Return the text with plain quotes, dashes and spaces. One typographic character turns an SMS
    of 160 characters into one of 70.
    """
    return text.translate(_TYPOGRAPHY)


def count_units(text: str, alphabet: Alphabet) -> int:
    """Return the number of septets or 16-bit units. Raises KeyError if a character is not in the
    alphabet.
    """
    if alphabet is Alphabet.UCS2:
        return len(text.encode("utf-16-be", "replace")) // 2
    return sum(len(_CODES[each]) for each in text)


def count_parts(text: str) -> int:
    """Return the number of messages that the text needs."""
    alphabet = choose_alphabet(text)
    size = count_units(text, alphabet)
    return 1 if size <= UNITS_PER_MESSAGE[alphabet] else -(-size // PART[alphabet])


def encode_septets(text: str) -> bytes:
    """Return the GSM code of each character, one per byte. Raises KeyError if a character is not in
    the GSM alphabet.
    """
    return b"".join(_CODES[each] for each in text)


def decode_septets(codes: bytes) -> str:
    """Return the text of GSM codes, one per byte. An unknown extension code is read as the
    character of the basic table (TS 23.038, 6.2.1.1).
    """
    characters, escaped = [], False
    for code in codes:
        if escaped:
            characters.append(
                EXTENSION.get(code, BASIC_CHARACTERS[code] if code != ESCAPE else " ")
            )
            escaped = False
        elif code == ESCAPE:
            escaped = True
        else:
            characters.append(BASIC_CHARACTERS[code])
    return "".join(characters)


def pack(codes: bytes, skip: int = 0) -> bytes:
    """Return septets packed into octets, the first in the lowest bits (TS 23.038, 6.1.2.1). `skip`
    is the number of bits before the first septet, which fill the last septet of a header.
    """
    packed_number = 0
    for index, code in enumerate(codes):
        packed_number |= code << (7 * index + skip)
    return packed_number.to_bytes((7 * len(codes) + skip + 7) // 8, "little")


def unpack(data: bytes, count: int, skip: int = 0) -> bytes:
    """Return `count` septets of the octets. Raises RemoteProtocolError if there are too few
    octets.
    """
    if 7 * count + skip > 8 * len(data):
        raise RemoteProtocolError(f"{len(data)} octets do not hold {count} septets")
    packed_number = int.from_bytes(data, "little") >> skip
    return bytes(packed_number >> (7 * index) & 0x7F for index in range(count))
