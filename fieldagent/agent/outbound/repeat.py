"""Sends again what had left: the peer lacks it, or nobody has confirmed it."""

from __future__ import annotations

from collections.abc import Collection

from fieldagent.agent.journal import outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.channel_queue import ChannelQueue


async def repeat(
    journal: Journal, queue: ChannelQueue, sequence: int, positions: Collection[int] | None = None
) -> None:
    """The fragments at these positions, or all of it. What waits anyway, or is not kept any more,
    is left as it is. Returns once it is on disk."""
    known = outbound.by_sequence(journal, sequence)
    if known is None or sequence in queue:
        return
    await journal.persist(outbound.send_again(queue.channel, sequence, positions))
    queue.add(known, None)
