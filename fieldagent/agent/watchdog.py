"""systemd's watchdog is fed while the disk takes what is written and every loop turns.

What hangs is named in the log before systemd ends the agent: the disk and a loop by their names,
and where nothing turns any more each thread by its stack, which a timer of faulthandler writes that
waits for nobody.
"""

from __future__ import annotations

import faulthandler
import logging
from collections.abc import Callable
from functools import partial

import trio

from fieldagent.agent.journal import lived
from fieldagent.agent.journal.journal import Journal
from fieldagent.store.group import StoreFull
from fieldagent.system import waits
from fieldagent.system.systemd_notify import notify, watchdog_interval

log = logging.getLogger(__name__)

TIMES = 3
"""How often it is fed within the time that systemd waits."""
LAST_WORDS = 0.9
"""The share of that time after which the stacks are written."""
PROOF_EVERY = 7
"""How many such times pass from one write that only proves the disk to the next: each is 33 kB
at the card, with what the file system writes of its own. Whoever else writes proves it too."""


async def keep_fed(
    journal: Journal,
    stuck: Callable[[], str | None],
    in_brief: Callable[[], str],
    beside: Callable[[], object],
) -> None:
    """Feed systemd's watchdog; returns at once where systemd expects no sign of life. `stuck` says
    what only a restart may mend, `in_brief` what is shown of an agent that works; `beside` is done
    at the same times."""
    interval = watchdog_interval()
    if interval is None:
        return
    every = interval / TIMES
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_prove_disk, journal, interval * PROOF_EVERY)
            while True:
                faulthandler.dump_traceback_later(interval * LAST_WORDS)
                if trouble := _hanging_write(journal, every / 2) or stuck():
                    log.error("%s; systemd will restart the agent", trouble)
                else:
                    notify("WATCHDOG=1")
                    notify(f"STATUS={in_brief()}")
                beside()
                await trio.sleep_until(waits.beat_after(every))
    finally:
        faulthandler.cancel_dump_traceback_later()


def _hanging_write(journal: Journal, bearable: float) -> str | None:
    silent = trio.current_time() - journal.writing_since
    if silent < bearable:
        return None
    return f"the disk has not taken a write for {silent:.0f} s: is it worn out, or gone?"


async def _prove_disk(journal: Journal, every: float) -> None:
    """Write one small row, again and again: that which says where lived time is, and has its use.

    A full disk answers, and no restart makes room on it.
    """
    while True:
        try:
            await journal.commit(partial(lived.keep, base=journal.clock.base()))
        except StoreFull:
            log.debug("the disk is full, and answers")
        await waits.sleep(every)
