"""Hours of the day from a first to a last minute. If the last minute is earlier, the hours span
midnight.
"""

from __future__ import annotations


def is_among(begins: int, ends: int, minute: float) -> bool:
    """Return True if `minute` is at or after `begins` and before `ends`, all in minutes of the day.
    If `begins` equals `ends`, the hours are the whole day.
    """
    if begins < ends:
        return begins <= minute < ends
    return minute >= begins or minute < ends
