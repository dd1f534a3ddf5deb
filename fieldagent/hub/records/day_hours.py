"""Hours of a day, over midnight where they end before they begin."""

from __future__ import annotations


def among(begins: int, ends: int, minute: float) -> bool:
    """Return whether a minute of the day is among them: from `begins` to before `ends`, both such
    minutes. Where these are one, it is the whole day."""
    if begins < ends:
        return begins <= minute < ends
    return minute >= begins or minute < ends
