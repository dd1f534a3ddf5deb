"""Codes signed integers as non-negative integers: 0, -1, 1, -2 as 0, 1, 2, 3."""

from __future__ import annotations


def zigzag(value: int) -> int:
    """Return the code of a signed number, 0 or more."""
    return 2 * value if value >= 0 else -2 * value - 1


def unzigzag(code: int) -> int:
    """Return the signed number of a code, which is 0 or more."""
    return -(code + 1 >> 1) if code & 1 else code >> 1
