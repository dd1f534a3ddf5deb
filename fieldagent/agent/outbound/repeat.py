"""Repeats Packages that have left, because the peer is missing them or has not confirmed them."""

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
    """Send the fragments at `positions` again, or the whole Package if `positions` is None. A
    Package that still waits, or that is no longer in the journal, is not changed. The change is on
    disk when the function returns.
    """
    if sequence in queue:
        return
    try:
        package = outbound.read_kept_package(journal, sequence)
    except DamagedPackage as damaged:
        log.error("%s: it is not sent again", damaged)
        return
    if package is None:
        return
    await journal.persist(outbound.send_again(queue.channel, sequence, positions))
    queue.add(package, None)
