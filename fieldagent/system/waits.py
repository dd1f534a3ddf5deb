"""Waits whose length is computed, which may be over before they begin.

trio refuses a negative length, and a deadline less the present moment becomes one while code runs.
So all computed lengths pass through here (tests/test_layers.py holds that); a deadline that is
known as a moment goes to `trio.move_on_at`, which takes one that has passed.
"""

from __future__ import annotations

import trio


async def sleep(seconds: float) -> None:
    """`trio.sleep`; a length below zero, or none at all (NaN), is zero."""
    await trio.sleep(max(0.0, seconds))


def move_on_after(seconds: float) -> trio.CancelScope:
    """`trio.move_on_after`; a length below zero, or none at all (NaN), is zero."""
    return trio.move_on_after(max(0.0, seconds))
