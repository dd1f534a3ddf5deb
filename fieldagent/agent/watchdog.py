"""Feeds systemd's watchdog while the disk accepts writes and every loop makes progress, and
describes the agent's state in one line for `systemctl status`.

If the disk or a loop hangs, the agent logs this before systemd ends it. If no task runs any more, a
timer of faulthandler writes the stack of each thread without waiting for other code.
"""

from __future__ import annotations

import faulthandler
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import trio

from fieldagent.agent.journal import elapsed_base
from fieldagent.agent.journal.journal import Journal
from fieldagent.store.group import StoreFull
from fieldagent.system import waits
from fieldagent.system.systemd_notify import get_watchdog_interval, notify

log = logging.getLogger(__name__)

SIGNS_PER_INTERVAL = 3
"""Number of notifications within the time that systemd waits for one (WATCHDOG_USEC)."""
STACK_DUMP_SHARE = 0.9
"""Share of the time that systemd waits, after which the stacks are written."""
INTERVALS_PER_DISK_PROOF = 7
"""Number of watchdog intervals between two writes that only prove that the disk works. Each such
write takes 33 kB on the memory card, including the file system's own writes. Any other write also
proves that the disk works."""
SILENCE_MAX_S = 180.0
"""Longest time in seconds that a loop may need for one iteration. It must be longer than the
longest session, including the modem's own deadline."""


class Progress:
    """Records when each loop last made progress. `clock` is any monotonic clock in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._turned: dict[str, float] = {}

    def watch(self, loop: str) -> Callable[[], None]:
        """Start to watch the loop `loop`. Return a function that the loop must call in each
        iteration.
        """

        def turn() -> None:
            self._turned[loop] = self._clock()

        turn()
        return turn

    def list_silent_loops(self) -> list[str]:
        """Return the names of the loops that have made no progress for SILENCE_MAX_S."""
        now = self._clock()
        return [loop for loop, at in self._turned.items() if now - at > SILENCE_MAX_S]


def summarise_status(status: dict[str, Any]) -> str:
    """Return a one-line summary of `status`, the response to `GET /api/status`."""
    phrases = _summarise_sos(status["sos"])
    links = {name: link for name, link in status["channels"].items() if link["configured"]}
    phrases += [_summarise_link(name, link) for name, link in links.items()] or [
        "no channel is configured"
    ]
    waiting_count = sum(link["queued"] for link in links.values())
    phrases.append(f"{waiting_count} to send" if waiting_count else "nothing to send")
    return "; ".join(phrases)


def _summarise_sos(sos: dict[str, Any]) -> list[str]:
    if not sos["active"]:
        return []
    incident = sos["incident"]
    last = incident["steps"][-1]
    return [f"SOS {incident['short']} {last['state']}{' ' + last['by'] if 'by' in last else ''}"]


def _summarise_link(name: str, link: dict[str, Any]) -> str:
    reason = f" ({link['reason']})" if link["reason"] else ""
    return f"{name} {link['state']}{reason}"


async def feed_watchdog(
    journal: Journal,
    find_problem: Callable[[], str | None],
    describe_status: Callable[[], str],
    store_time: Callable[[], object],
) -> None:
    """Feed systemd's watchdog. Return immediately if systemd expects no notifications.
    `find_problem` returns a problem that only a restart may fix. `describe_status` returns the text
    that systemd shows while the agent works. `store_time` is called in each interval.
    """
    interval = get_watchdog_interval()
    if interval is None:
        return
    feed_interval = interval / SIGNS_PER_INTERVAL
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_prove_disk, journal, interval * INTERVALS_PER_DISK_PROOF)
            while True:
                faulthandler.dump_traceback_later(interval * STACK_DUMP_SHARE)
                if fault := _find_hanging_write(journal, feed_interval / 2) or find_problem():
                    log.error("%s; systemd will restart the agent", fault)
                else:
                    notify("WATCHDOG=1")
                    notify(f"STATUS={describe_status()}")
                store_time()
                await trio.sleep_until(waits.compute_nearest_beat(feed_interval))
    finally:
        faulthandler.cancel_dump_traceback_later()


def _find_hanging_write(journal: Journal, limit_s: float) -> str | None:
    silence = trio.current_time() - journal.writing_since
    if silence < limit_s:
        return None
    return f"the disk has not completed a write for {silence:.0f} s: is it worn out, or gone?"


async def _prove_disk(journal: Journal, interval_s: float) -> None:
    """Write one small row regularly, to prove that the disk works. The row is the base of elapsed
    time, which must be stored anyway.

    A full disk is considered working, because a restart would not free space.
    """
    while True:
        try:
            await journal.commit(partial(elapsed_base.store_base, base=journal.clock.get_base()))
        except StoreFull:
            log.debug("the disk is full, and answers")
        await waits.sleep(interval_s)
