"""Encodes signed integers as non-negative integers: 0, -1, 1, -2 become 0, 1, 2, 3."""

from __future__ import annotations


def zigzag(value: int) -> int:
    """Return the code of a signed number. The code is never negative."""
    return 2 * value if value >= 0 else -2 * value - 1


def unzigzag(code: int) -> int:
    """Return the signed number that has the code `code`."""
    return -(code + 1 >> 1) if code & 1 else code >> 1
