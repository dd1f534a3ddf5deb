"""Serves a device for ever: absent, unplugged or without power, it is opened again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn

import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.system import waits
from fieldagent.system.error_groups import first_error

REOPEN_AFTER = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds between tries to open the device, the last for ever."""
STEADY = 60.0
"""Seconds that it must have worked for the tries to begin anew: one that answers at first and then
refuses something is not opened each second."""


async def no_healing() -> bool:
    """Leave the device as it is, and say that nothing was done."""
    return False


async def keep_open(
    work: Callable[[], Awaitable[None]],
    lost: tuple[type[Exception], ...],
    tell: Callable[[BaseException], None],
    progress: Callable[[], None],
    link: ChannelLink,
    heal: Callable[[], Awaitable[bool]] = no_healing,
) -> NoReturn:
    """Call `work` for ever: it opens the device and works with it until it raises one of `lost`,
    which `tell` is told.

    `progress` is called before each try, and `heal` after each that failed. It tells whether it did
    something, so that another try is worth while soon, and takes two minutes and a half at most.
    """
    tries = 0
    while True:
        progress()
        began = trio.current_time()
        try:
            await work()
        except* lost as trouble:
            error = first_error(trouble)
            tell(error)
            failed = f"{type(error).__name__}: {error}"
        else:
            failed = ""
        if failed:
            await link.recorder.fault(failed)
        steady = trio.current_time() - began >= STEADY
        if await heal() or steady:
            tries = 0
        pause = REOPEN_AFTER[min(tries, len(REOPEN_AFTER) - 1)]
        link.next_look = link.next_urgent = trio.current_time() + pause
        await waits.sleep(pause)
        tries += 1
