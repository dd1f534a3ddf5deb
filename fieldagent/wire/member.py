"""Checks the members of entries that a peer has sent. The functions raise ValueError if a member is
invalid.
"""

from __future__ import annotations

from typing import Any


def is_int(value: Any) -> bool:
    """Return True if the value is an integer, but not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_in_range(value: Any, *, minimum: int = -(2**32), maximum: int = 2**32 - 1) -> bool:
    """Return True if the value is an integer in the range, by default the range of 4 bytes in
    CBOR.
    """
    return is_int(value) and minimum <= value <= maximum


def expect(condition: bool, missing_part: str) -> None:
    """Raise ValueError if `condition` is False. The message states that `missing_part` is
    missing.
    """
    if not condition:
        raise ValueError(f"{missing_part} is missing")


def read_text(value: Any) -> str:
    """Return a text member. Raises ValueError for any other value."""
    expect(isinstance(value, str), "text")
    return str(value)


def read_bytes(value: Any) -> bytes:
    """Return a byte string member. Raises ValueError for any other value."""
    expect(isinstance(value, bytes), "bytes")
    return bytes(value)
