"""Each SOS that is not over, as people are told of it: since when, whether a channel has delivered
it, who has it, the next try."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fieldagent.agent.journal import outbound, sos
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.agent.outbound.waiting import WaitReasons
from fieldagent.package.package import Channel, Status

SHOWN_MAX = 100
"""How many are told of; all are counted."""
CONFIRMED_FOR = 86_400.0
"""Seconds for which one that somebody has confirmed is shown still: help is on its way."""


def sos_status(
    journal: Journal,
    queues: Mapping[Channel, ChannelQueue],
    outboxes: Mapping[Channel, ChannelOutbox],
    *,
    every: float,
) -> dict[str, Any]:
    """`every` is after how many seconds of silence an SOS goes again."""
    now, date = journal.clock.now(), journal.clock.date
    active = sos.declared(journal)
    shown = [*active, *sos.confirmed(journal, since=date(now) - CONFIRMED_FOR)][:SHOWN_MAX]
    if not shown:
        return {"active": 0, "packages": []}
    reasons = WaitReasons(journal, queues, outboxes, now)
    taken = sos.taken(journal) if every else {}
    repeats = {key: date(at + every) for key, at in taken.items()}
    found = []
    for sequence in shown:
        known = outbound.by_sequence(journal, sequence)
        if known is None:
            continue
        receipts = outbound.receipts(journal, sequence)
        next_try = None if receipts else _next_try(sequence, queues, reasons, repeats)
        found.append(
            {
                "id": known.id,
                "since": date(known.accepted),
                "delivered": known.status is Status.DELIVERED,
                "confirmedBy": [each.as_json() for each in receipts],
                "nextTry": None if next_try is None else max(date(now), next_try),
            }
        )
    return {"active": len(active), "packages": found}


def _next_try(
    sequence: int,
    queues: Mapping[Channel, ChannelQueue],
    reasons: WaitReasons,
    repeats: Mapping[tuple[int, Channel], float],
) -> float | None:
    """The date; None where no channel goes on with it."""
    waits = [name for name, queue in queues.items() if sequence in queue]
    moments = [reasons.next_try(name, sequence) for name in waits]
    moments += [
        at
        for (number, name), at in repeats.items()
        if number == sequence and name in queues and name not in waits
    ]
    return min(moments, default=None)
