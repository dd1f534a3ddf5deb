"""Checks of what a peer sent as a member of an entry: ValueError where it is something else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def in_range(value: Any, *, low: int = -(2**32), high: int = 2**32 - 1) -> bool:
    return is_int(value) and low <= value <= high


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"no {what} where one belongs")


def read_text(value: Any) -> str:
    expect(isinstance(value, str), "text")
    return str(value)


def read_bytes(value: Any) -> bytes:
    expect(isinstance(value, bytes), "bytes")
    return bytes(value)


def moment(time: int) -> datetime:
    return datetime.fromtimestamp(time, UTC)
