"""Keeps every SOS on its way until somebody's agent has stored it, or its sender calls it off.

That a channel took it says no more than that: the operator may lose it, nobody may listen. So it
goes again over each channel that took it; receivers know its number and hand it to nobody twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NoReturn

import trio

from fieldagent.agent.journal import sos
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.idle_time import IdleTimes
from fieldagent.agent.outbound.repeat import repeat
from fieldagent.package.package import Channel

log = logging.getLogger(__name__)

LOOK_EVERY = 15.0
"""Seconds."""


async def keep_going(
    journal: Journal,
    queues: Mapping[Channel, ChannelQueue],
    *,
    every: float,
    clock: Callable[[], float],
) -> NoReturn:
    """`every` is how many seconds an SOS may be silent on a channel; 0 repeats none."""
    repeating: set[tuple[int, Channel]] = set()
    idle = IdleTimes[tuple[int, Channel]](LOOK_EVERY)
    while True:
        declared = set(sos.declared(journal))
        for sequence, channel in list(repeating):
            if sequence not in declared:
                queues[channel].withdraw(sequence, "confirmed")
                repeating.discard((sequence, channel))
        silent = idle.measure(sos.taken(journal), trio.current_time(), clock())
        due = [key for key, seconds in silent.items() if every and seconds >= every]
        for sequence, channel in due:
            if channel in queues and sequence not in queues[channel]:
                log.warning("nobody has confirmed SOS %d: again over %s", sequence, channel)
                await repeat(journal, queues[channel], sequence)
                repeating.add((sequence, channel))
        if not declared:
            # Nothing changes until something is accepted.
            await journal.news()
        await trio.sleep(LOOK_EVERY)
