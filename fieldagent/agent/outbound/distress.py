"""Each SOS that is not over, as people are told of it: since when, who has it, the next try."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from fieldagent.agent.journal import outbound, sos
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.channel_queue import ChannelQueue, due
from fieldagent.package.package import Channel

SHOWN_MAX = 100
"""How many are told of; all are counted."""
CONFIRMED_FOR = 86_400.0
"""Seconds for which one that somebody has confirmed is shown still: help is on its way."""


def distress(
    journal: Journal, queues: Mapping[Channel, ChannelQueue], *, every: float
) -> dict[str, Any]:
    """`every` is after how many seconds of silence an SOS goes again."""
    now, date = journal.clock.now(), journal.clock.date
    active = sos.declared(journal)
    shown = [*active, *sos.confirmed(journal, since=date(now) - CONFIRMED_FOR)][:SHOWN_MAX]
    taken = sos.taken(journal) if every else {}
    found = []
    for sequence in shown:
        known = outbound.by_sequence(journal, sequence)
        if known is None:
            continue
        receipts = outbound.receipts(journal, sequence)
        next_try = None if receipts else _next_try(sequence, queues, taken, every, now)
        found.append(
            {
                "id": known.id,
                "since": date(known.accepted),
                "confirmedBy": [each.as_json() for each in receipts],
                "nextTry": None if next_try is None else date(next_try),
            }
        )
    return {"active": len(active), "packages": found}


def _next_try(
    sequence: int,
    queues: Mapping[Channel, ChannelQueue],
    taken: Mapping[tuple[int, Channel], float],
    every: float,
    now: float,
) -> float | None:
    """None where no channel goes on with it."""
    to_lived = now - trio.current_time()
    moments = [
        due(queue, sequence) + to_lived for queue in queues.values() if sequence in queue
    ] + [
        at + every
        for (number, channel), at in taken.items()
        if number == sequence and channel in queues and number not in queues[channel]
    ]
    return max(now, min(moments)) if moments else None
