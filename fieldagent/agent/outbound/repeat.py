"""Sends again what had left: the peer lacks it, or nobody has confirmed it."""

from __future__ import annotations

import logging
from collections.abc import Collection

from fieldagent.agent.journal import outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import DamagedPackage
from fieldagent.agent.outbound.channel_queue import ChannelQueue

log = logging.getLogger(__name__)


async def repeat(
    journal: Journal, queue: ChannelQueue, sequence: int, positions: Collection[int] | None = None
) -> None:
    """Send again the fragments at these positions, or all of it. What waits anyway, or is not kept
    any more, is left as it is. Returns once it is on disk."""
    if sequence in queue:
        return
    try:
        known = outbound.package(journal, sequence)
    except DamagedPackage as damaged:
        log.error("%s: it is not sent again", damaged)
        return
    if known is None:
        return
    await journal.persist(outbound.send_again(queue.channel, sequence, positions))
    queue.add(known, None)
