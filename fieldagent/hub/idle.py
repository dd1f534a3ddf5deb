"""The wait between two rounds of a background task.

The wait ends when something becomes due, or when a write may have made something due earlier. A hub
that has nothing to do sleeps.
"""

from __future__ import annotations

import trio

from fieldagent.system import waits

BUSY_INTERVAL_S = 5.0
"""Shortest time in seconds between two rounds. A round can be late by this time."""
ROUND_INTERVAL_MAX_S = 60.0
"""Seconds after which a round runs in any case. The reasons: someone may set the clock, the machine
may sleep, and a process may die before it announces its write."""


async def wait_until_due(
    write_event: trio.Event,
    seconds: float,
    *,
    news: trio.Event | None = None,
    beat: float | None = None,
    net: float | None = None,
) -> None:
    """Wait until the next round of a background task is due.

    `write_event` is the event of `store.contract.ANY_WRITE_TOPIC`. Get the event before you read
    the database to compute `seconds`. `seconds` is the time until something becomes due. If `news`
    is set, a round after a write begins without the rest of `BUSY_INTERVAL_S`. `net` replaces
    `ROUND_INTERVAL_MAX_S`, and `beat` replaces `BUSY_INTERVAL_S`.
    """
    started_at = trio.current_time()
    with waits.move_on_after(min(seconds, ROUND_INTERVAL_MAX_S if net is None else net)):
        await write_event.wait()
    with trio.move_on_at(started_at + (BUSY_INTERVAL_S if beat is None else beat)):
        await (trio.Event() if news is None else news).wait()
