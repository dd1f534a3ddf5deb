"""Asks the peer for the missing fragments of an item when no more fragments arrive.

Each request costs credits or air time, and a sender that withdrew its Package never answers. So the
requests become less and less frequent, and then stop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NoReturn

import trio

from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.journal import inbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.idle_time import IdleTimes
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.package.package import Channel
from fieldagent.wire.envelope import Entry, Report, compute_fragments_digest
from fieldagent.wire.fragments import ASK_AFTER_S, ASK_UNTIL_S, SILENCE_GROWTH_FACTOR

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = ASK_AFTER_S / 4


async def run_fragment_requests(
    journal: Journal, outboxes: Mapping[Channel, ChannelOutbox], *, clock: Callable[[], float]
) -> NoReturn:
    """Ask for missing fragments forever. `clock` is the journal's clock."""
    silences = IdleTimes[inbound.FragmentedItem](CHECK_INTERVAL_S)
    asked_times: dict[inbound.FragmentedItem, float] = {}
    """For each item, the seconds without a new fragment at the time of the last request."""
    while True:
        await trio.sleep(CHECK_INTERVAL_S)
        last = inbound.list_incomplete(journal)
        silence = silences.measure(last, trio.current_time(), clock())
        asked_times = {item: asked_times.get(item, 0.0) for item in last}
        for item, seconds in silence.items():
            if seconds < asked_times[item]:
                asked_times[item] = 0.0
            outbox = _find_channel_toward(outboxes, item.origin)
            if (
                outbox is None
                or not max(ASK_AFTER_S, SILENCE_GROWTH_FACTOR * asked_times[item])
                <= seconds
                < ASK_UNTIL_S
            ):
                continue
            asked_times[item] = seconds
            held_fragments = inbound.read_committed_fragments(journal, item)
            log.info(
                "%d of %d fragments of %d received", len(held_fragments), item.parts, item.sequence
            )
            report = Report(
                item.parts,
                frozenset(held_fragments),
                compute_fragments_digest(held_fragments.values()),
            )
            outbox.report(
                item.origin, Entry(item.sequence, report, int(journal.clock.date(clock())))
            )


def _find_channel_toward(
    outboxes: Mapping[Channel, ChannelOutbox], origin: int
) -> ChannelOutbox | None:
    """Return the outbox of the channel that reaches `origin` soonest. For a station, this is the
    radio; for the hub, a channel that is ready, preferably the cheapest. Return None if there is
    none.
    """
    if origin < 0:
        return outboxes.get(Channel.RADIO)
    to_hub = (Channel.CELLULAR, Channel.SATELLITE)
    configured = [outboxes[channel] for channel in to_hub if channel in outboxes]
    ready = [outbox for outbox in configured if outbox.link.state is LinkState.READY]
    return next(iter(ready or configured), None)
