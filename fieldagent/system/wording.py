"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, unit: str) -> str:
    """1 credit, 2 credits."""
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
