"""Checks of what a peer sent as a member of an entry: ValueError where it is something else."""

from __future__ import annotations

from typing import Any


def is_int(value: Any) -> bool:
    """Return whether it is a whole number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def in_range(value: Any, *, low: int = -(2**32), high: int = 2**32 - 1) -> bool:
    """Return whether it is a whole number in that range, by default what CBOR writes in 4 bytes."""
    return is_int(value) and low <= value <= high


def expect(condition: bool, what: str) -> None:
    """Raise ValueError, which names `what` as missing, unless the condition holds."""
    if not condition:
        raise ValueError(f"no {what} where one belongs")


def read_text(value: Any) -> str:
    """Return the member, which is text. Raises ValueError."""
    expect(isinstance(value, str), "text")
    return str(value)


def read_bytes(value: Any) -> bytes:
    """Return the member, which is a byte string. Raises ValueError."""
    expect(isinstance(value, bytes), "bytes")
    return bytes(value)
