"""NMEA 0183: sentences of a satellite navigation receiver, recognised by their checksums."""

from __future__ import annotations

import re
from functools import reduce
from operator import xor

_SENTENCE = re.compile(rb"\$([A-Z0-9]{5}(?:,[ -#%-)+-~]*)?)\*([0-9A-Fa-f]{2})\r?\n")


def parse_sentences(data: bytes) -> list[str]:
    """Return the complete sentences with a correct checksum, without the `$` and the checksum."""
    return [
        match[1].decode()
        for match in _SENTENCE.finditer(data)
        if reduce(xor, match[1]) == int(match[2], 16)
    ]


def read_satellite_count(lines: list[str]) -> int | None:
    """Return the number of satellites of the last position (GGA), or None if there is no such
    sentence.
    """
    for sentence in reversed(lines):
        fields = sentence.split(",")
        if fields[0][2:] == "GGA" and len(fields) > 7 and fields[7].isdigit():
            return int(fields[7]) if fields[6] not in ("", "0") else 0
    return None
