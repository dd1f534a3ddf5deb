"""Waiting between two rounds of a part. The wait lasts until something falls due by time, or until
a write may make something due earlier. A hub without either sleeps.
"""

from __future__ import annotations

import trio

from fieldagent.system import waits

BUSY_INTERVAL_S = 5.0
"""Seconds between two rounds while there are constant writes. This is also the largest delay."""
ROUND_INTERVAL_MAX_S = 60.0
"""Seconds after which a round runs in any case. A clock may be set, a machine may sleep, and a
process may die before it announces its write."""


async def wait_until_due(
    write_event: trio.Event,
    seconds: float,
    *,
    news: trio.Event | None = None,
    beat: float | None = None,
    net: float | None = None,
) -> None:
    """Wait until something is due.

    `write_event` is the event of `store.contract.ANY_WRITE_TOPIC`. Get it before the read that
    finds `seconds`. After `seconds` something falls due; a negative value means an unknown time.
    `news` ends the wait at once.
    """
    began = trio.current_time()
    with waits.move_on_after(min(seconds, ROUND_INTERVAL_MAX_S if net is None else net)):
        await write_event.wait()
    with trio.move_on_at(began + (BUSY_INTERVAL_S if beat is None else beat)):
        await (trio.Event() if news is None else news).wait()
