"""Serves a device forever, and opens the device again after it was absent, unplugged or without
power.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn

import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.system import waits
from fieldagent.system.error_groups import get_first_error

REOPEN_AFTER = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds between attempts to open the device; the last value repeats."""
STABLE_AFTER_S = 60.0
"""If the device has worked for this many seconds, the pauses start again with the first. Without
this minimum, a device that answers and then fails would be reopened every second."""


async def forbid_healing() -> bool:
    """Take no recovery step, and return False."""
    return False


async def run_and_reopen(
    work: Callable[[], Awaitable[None]],
    lost_errors: tuple[type[Exception], ...],
    report_loss: Callable[[BaseException], None],
    progress: Callable[[], None],
    link: ChannelLink,
    heal: Callable[[], Awaitable[bool]] = forbid_healing,
) -> NoReturn:
    """Call `work` forever. `work` opens the device and serves it until it raises one of the errors
    in `lost_errors`. This error is passed to `report_loss`.

    `progress` is called before each attempt, and `heal` after each attempt. `heal` returns True if
    it has taken a recovery step. The next attempt then follows soon. `heal` must take at most two
    and a half minutes.
    """
    tries = 0
    while True:
        progress()
        started_at = trio.current_time()
        try:
            await work()
        except* lost_errors as trouble:
            error = get_first_error(trouble)
            report_loss(error)
            failed = f"{type(error).__name__}: {error}"
        else:
            failed = ""
        if failed:
            await link.recorder.record_fault(failed)
        steady = trio.current_time() - started_at >= STABLE_AFTER_S
        if await heal() or steady:
            tries = 0
        pause = REOPEN_AFTER[min(tries, len(REOPEN_AFTER) - 1)]
        link.next_look = link.next_urgent = trio.current_time() + pause
        await waits.sleep(pause)
        tries += 1
