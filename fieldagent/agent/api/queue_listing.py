"""The pages of `GET /api/queue`: what waits, oldest first.

However much waits, no page holds up anybody: it is read some at a time, and counted aside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

import trio

from fieldagent.agent.api.content import TEXT_MAX, content
from fieldagent.agent.journal import outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import DamagedPackage
from fieldagent.agent.outbound.waiting import WaitReasons
from fieldagent.package.package import Channel

PAGE_MAX = 1000
"""Packages on one page, and where nobody says how many."""
AT_ONCE = 50
"""Packages that are read between two looks at who else wants something."""


async def page(
    journal: Journal, waiting: WaitReasons, channels: Collection[Channel], after: int, limit: int
) -> tuple[dict[str, Any], int | None]:
    """Those behind the place `after`; and the place behind which others follow."""
    queued = await outbound.count_waiting(journal, channels)
    listed: list[dict[str, Any]] = []
    sequences = outbound.waiting_behind(journal, channels, after, limit + 1)
    for begin in range(0, min(limit, len(sequences)), AT_ONCE):
        listed += _rows(journal, waiting, sequences[begin : min(begin + AT_ONCE, limit)])
        await trio.lowlevel.checkpoint()
    last = sequences[limit - 1] if len(sequences) > limit else None
    return {"queued": queued, "packages": listed}, last


def _rows(
    journal: Journal, waiting: WaitReasons, sequences: Collection[int]
) -> Iterator[dict[str, Any]]:
    date = journal.clock.date
    for sequence in sequences:
        # One that is damaged ends as soon as its turn comes.
        with suppress(DamagedPackage):
            accepted = outbound.package(journal, sequence)
            if accepted is not None:
                yield {
                    "id": accepted.id,
                    **content(accepted.package, TEXT_MAX),
                    "collapseKey": accepted.package.collapse_key,
                    "accepted": date(accepted.accepted),
                    "expires": None if accepted.expires is None else date(accepted.expires),
                    "channels": waiting.legs_json(sequence, outbound.legs(journal, sequence)),
                }
