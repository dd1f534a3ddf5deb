"""How long a part rests that does what falls due: until the next falls due by itself, or until
something is written that may fall due sooner. A hub where neither happens sleeps."""

from __future__ import annotations

import trio

from fieldagent.system import waits

BEAT = 5.0
"""Seconds between two looks while others write all the time, and so how late one may be."""
NET = 60.0
"""Seconds after which it is looked in any case: a clock may be set, a machine sleep, and a hub
process die that has told nobody what it wrote."""


async def until_due(
    written: trio.Event,
    seconds: float,
    *,
    news: trio.Event | None = None,
    beat: float | None = None,
    net: float | None = None,
) -> None:
    """Wait until something is due. `written` is of `store.contract.ANYTHING`, from before the look
    that found `seconds`, after which something falls due; below zero is for what falls due at a
    moment that nobody knows. `news` end it at once."""
    began = trio.current_time()
    with waits.move_on_after(min(seconds, NET if net is None else net)):
        await written.wait()
    with trio.move_on_at(began + (BEAT if beat is None else beat)):
        await (trio.Event() if news is None else news).wait()
