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
from math import inf

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


async def keep_fed(
    journal: Journal,
    stuck: Callable[[], str | None],
    in_brief: Callable[[], str],
    beside: Callable[[], object],
) -> None:
    """Returns at once where systemd expects no sign of life. `stuck` says what only a restart may
    mend, `in_brief` what is shown of an agent that works; `beside` is done at the same times."""
    interval = watchdog_interval()
    if interval is None:
        return
    proof = _DiskProof(journal, interval / TIMES)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(proof.run)
            while True:
                faulthandler.dump_traceback_later(interval * LAST_WORDS)
                if trouble := proof.trouble() or stuck():
                    log.error("%s; systemd will restart the agent", trouble)
                else:
                    notify("WATCHDOG=1")
                    notify(f"STATUS={in_brief()}")
                beside()
                await waits.sleep(interval / TIMES)
    finally:
        faulthandler.cancel_dump_traceback_later()


class _DiskProof:
    """Writes one small row and waits until it is on the disk, again and again.

    It is the row that says where lived time is, which has its use and wears little: two pages each
    time. A full disk answers, and no restart makes room on it.
    """

    def __init__(self, journal: Journal, every: float) -> None:
        self._journal = journal
        self._every = every
        self._since = inf
        """When the write under way began."""

    async def run(self) -> None:
        while True:
            self._since = trio.current_time()
            try:
                base = self._journal.clock.base()
                await self._journal.commit(partial(lived.keep, base=base))
            except StoreFull:
                log.debug("the disk is full, and answers")
            self._since = inf
            await waits.sleep(self._every)

    def trouble(self) -> str | None:
        silent = trio.current_time() - self._since
        if silent < self._every / 2:
            return None
        return f"the disk has not taken a write for {silent:.0f} s: is it worn out, or gone?"
