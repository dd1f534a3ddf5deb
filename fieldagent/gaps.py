"""Asks the peer for what is missing of an item whose fragments have stopped to come.

Each question costs, and a sender that withdrew its Package never answers: they become ever rarer,
and end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import NoReturn

import trio

from fieldagent.channels import LinkState
from fieldagent.journal import inbound
from fieldagent.journal.commit import Journal
from fieldagent.outbox import ChannelOutbox
from fieldagent.package import Channel

log = logging.getLogger(__name__)

PATIENCE = 600.0
"""Seconds without a further fragment after which those that are missing are asked for."""
RARER = 4
"""How many times as long it must have been silent for the next question."""
LAST = 2 * 86_400.0
"""Seconds of silence after which nobody is asked any more."""


LOOK_EVERY = PATIENCE / 4


@dataclass(slots=True)
class _Silence:
    at: float
    """When the last fragment came, by the clock that was then; another tells of another one."""
    since: float
    """The same on trio's clock, which nobody sets."""
    asked: float = 0.0
    """How long it had lasted at the last question."""


async def keep_asking(
    journal: Journal, outboxes: Mapping[Channel, ChannelOutbox], *, clock: Callable[[], float]
) -> NoReturn:
    """`clock` is Unix time."""
    silences: dict[inbound.Item, _Silence] = {}
    # What came in an earlier life is as old as the clock says; what comes now was just here.
    oldest = inf
    while True:
        await trio.sleep(LOOK_EVERY)
        now = trio.current_time()
        known, silences = silences, {}
        for gap in inbound.incomplete(journal):
            silence = known.get(gap.item)
            if silence is None or silence.at != gap.at:
                silence = _Silence(gap.at, now - min(max(0.0, clock() - gap.at), oldest))
            silences[gap.item] = silence
            silent = now - silence.since
            outbox = _toward(outboxes, gap.item.origin)
            if outbox is None or not max(PATIENCE, RARER * silence.asked) <= silent < LAST:
                continue
            silence.asked = silent
            origin, sequence, count = gap.item
            log.info("%d of %d fragments have come of %d", len(gap.arrived), count, sequence)
            outbox.report(origin, sequence, count, gap.arrived)
        oldest = LOOK_EVERY


def _toward(outboxes: Mapping[Channel, ChannelOutbox], origin: int) -> ChannelOutbox | None:
    """The channel that carries a word to it soonest: stations are on the air, all else is behind
    the hub, to which cellular costs least."""
    if origin < 0:
        return outboxes.get(Channel.RADIO)
    to_hub = (Channel.CELLULAR, Channel.SATELLITE)
    configured = [outboxes[channel] for channel in to_hub if channel in outboxes]
    ready = [outbox for outbox in configured if outbox.link.state is LinkState.READY]
    return next(iter(ready or configured), None)
