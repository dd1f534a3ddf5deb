"""The pages of `GET /api/packages`: what was sent, newest first.

However long the journal is, no page holds up anybody: it is read some at a time, and one that finds
little of what is asked for ends early, with the place where the next one goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import trio

from fieldagent.agent.api.queue_listing import AT_ONCE, in_list, look
from fieldagent.agent.journal import listing, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import Accepted, Known
from fieldagent.agent.outbound.settlement import credits_in_words
from fieldagent.agent.outbound.waiting import WaitReasons
from fieldagent.package.package import Status

WAITING = "waiting"
STATES = (WAITING, *Status)
LOOKED_AT_MAX = 10_000
"""Packages that one page looks at."""


async def page(
    journal: Journal,
    waiting: WaitReasons,
    state: str | None,
    kind: str | None,
    before: int,
    limit: int,
) -> tuple[list[dict[str, Any]], int | None]:
    """Those before that place; and the place before which there may be others."""
    found: list[dict[str, Any]] = []
    place = before
    for _ in range(0, LOOKED_AT_MAX, AT_ONCE):
        batch = listing.newest(journal, place, AT_ONCE)
        for sequence, row in _rows(journal, waiting, batch, state, kind):
            found.append(row)
            if len(found) == limit:
                return found, sequence if listing.newest(journal, sequence, 1) else None
        if len(batch) < AT_ONCE:
            return found, None
        place = batch[-1].sequence
        await trio.lowlevel.checkpoint()
    return found, place


def _rows(
    journal: Journal,
    waiting: WaitReasons,
    batch: listing.Batch,
    state: str | None,
    kind: str | None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    for sequence, status in batch:
        if state not in (None, status or WAITING):
            continue
        found = look(journal, sequence)
        if found is None:
            continue
        said = in_list(found)
        if kind in (None, said["kind"]):
            yield sequence, _row(journal, waiting, found, said)


def _row(
    journal: Journal, waiting: WaitReasons, found: Accepted | Known, said: dict[str, Any]
) -> dict[str, Any]:
    sent = listing.transmissions(journal, found.sequence)
    receipts = outbound.receipts(journal, found.sequence)
    date, ended = journal.clock.date, found.ended
    return {
        "id": found.id,
        **said,
        "relayed": isinstance(found, Accepted) and bool(found.origin),
        "accepted": date(found.accepted),
        "ended": None if ended is None else date(ended),
        "status": found.status,
        "channels": waiting.legs_json(found.sequence, outbound.legs(journal, found.sequence)),
        "credits": round(sum(credits_in_words(detail) * times for detail, times in sent), 2),
        "receipts": [each.as_json() for each in receipts],
    }
