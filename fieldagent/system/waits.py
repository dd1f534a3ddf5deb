"""Waits with a computed length, and work that may finish while the program stops.

trio refuses a negative length, but a remaining time can become negative while code runs. So all
code with computed lengths uses this module (tests/layers.py checks that). For a known deadline use
`trio.move_on_at`, which accepts a deadline in the past.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

STOP_GRACE_S = 5.0
"""Longest time in seconds for work that may finish during a stop. systemd waits longer."""
BEAT_INTERVAL_S = 60.0
"""Seconds between two beats. All work that is not urgent runs together on a beat, so that an idle
kit wakes up only once for all of it."""


async def sleep(seconds: float) -> None:
    """Sleep as `trio.sleep` does. A negative length or NaN is treated as zero."""
    await trio.sleep(max(0.0, seconds))


def compute_nearest_beat(seconds: float) -> float:
    """Return the time, on trio's clock, of the beat that is nearest to `seconds` from now. The beat
    differs from this time by at most half a beat. If `seconds` is below one beat, return the exact
    time.
    """
    at = trio.current_time() + seconds
    return at if seconds < BEAT_INTERVAL_S else BEAT_INTERVAL_S * round(at / BEAT_INTERVAL_S)


def compute_next_tick(interval_s: float) -> float:
    """Return the next time, on trio's clock, that is a multiple of `interval_s`. All waits with
    this interval share one wake-up. If BEAT_INTERVAL_S is a multiple of `interval_s`, work on a
    beat shares this wake-up too.
    """
    return interval_s * (trio.current_time() // interval_s + 1)


def move_on_after(seconds: float) -> trio.CancelScope:
    """Return the scope of `trio.move_on_after`. A negative length or NaN is treated as zero."""
    return trio.move_on_after(max(0.0, seconds))


async def run_to_the_end(work: Callable[[], Awaitable[None]]) -> None:
    """Run `work`. After a cancellation from outside, `work` still has STOP_GRACE_S to finish.

    This is for calls of other programs, because an interrupted call would be repeated after the
    next start.
    """
    async with trio.open_nursery() as nursery:
        with trio.CancelScope(shield=True) as scope:

            async def start_grace_period() -> None:
                try:
                    await trio.sleep_forever()
                finally:
                    scope.deadline = trio.current_time() + STOP_GRACE_S

            nursery.start_soon(start_grace_period)
            await work()
        nursery.cancel_scope.cancel()


async def wait_for_either(first_event: trio.Event, second_event: trio.Event) -> None:
    """Return when one of the two events is set."""
    async with trio.open_nursery() as nursery:

        async def wait(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(wait, first_event)
        nursery.start_soon(wait, second_event)
