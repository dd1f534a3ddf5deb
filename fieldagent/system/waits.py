"""Waits whose length is computed, and what may finish although everything stops.

trio refuses a negative length, and a deadline less the present moment becomes one while code runs.
So all computed lengths pass through here (tests/layers.py checks that); a deadline that is
known as a moment goes to `trio.move_on_at`, which takes one that has passed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

STOP_GRACE = 5.0
"""Seconds that remain for what may finish: systemd waits longer."""
BEAT = 60.0
"""Seconds. What has time is done on the beat, all at once: a kit at rest is woken once for it."""


async def sleep(seconds: float) -> None:
    """Sleep as `trio.sleep` does; a length below zero, or none at all (NaN), is zero."""
    await trio.sleep(max(0.0, seconds))


def beat_after(seconds: float) -> float:
    """Return the moment, of trio's clock, of the beat that is nearest to so many seconds from now:
    half a beat from there at the most. Less than a beat is as long as it is."""
    at = trio.current_time() + seconds
    return at if seconds < BEAT else BEAT * round(at / BEAT)


def next_tick(every: float) -> float:
    """Return the next moment, of trio's clock, at which all who are shown something so often are
    shown it: the program is woken once for them, and for the beat where that is a multiple."""
    return every * (trio.current_time() // every + 1)


def move_on_after(seconds: float) -> trio.CancelScope:
    """Move on as `trio.move_on_after` does; a length below zero, or none at all (NaN), is zero."""
    return trio.move_on_after(max(0.0, seconds))


async def let_finish(work: Callable[[], Awaitable[None]]) -> None:
    """Run `work`; where that is cancelled from outside, it has still STOP_GRACE to come to its end.

    For what another program has begun to act on, and would act on twice after the next start.
    """
    async with trio.open_nursery() as nursery:
        with trio.CancelScope(shield=True) as scope:

            async def begin_to_count() -> None:
                try:
                    await trio.sleep_forever()
                finally:
                    scope.deadline = trio.current_time() + STOP_GRACE

            nursery.start_soon(begin_to_count)
            await work()
        nursery.cancel_scope.cancel()


async def either(one: trio.Event, other: trio.Event) -> None:
    """Return once one of the two is set."""
    async with trio.open_nursery() as nursery:

        async def wait(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(wait, one)
        nursery.start_soon(wait, other)
