"""Pages of `GET /api/packages`: sent Packages, newest first.

A page never blocks other work, however long the journal is, because rows are read in batches. A
page with few matches ends early, with the place where the next page continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import trio

from fieldagent.agent.api.queue_listing import AT_ONCE, in_list
from fieldagent.agent.journal import inbound, listing, outbound
from fieldagent.agent.journal.directory import in_words
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import Accepted, Known
from fieldagent.agent.outbound.reach import beyond
from fieldagent.agent.outbound.settlement import credits_in_words
from fieldagent.agent.outbound.waiting import WaitReasons
from fieldagent.package.package import Status

WAITING = "waiting"
STATES = (WAITING, *Status)
LOOKED_AT_MAX = 10_000
"""Most Packages that are searched for one page."""


async def page(
    journal: Journal,
    waiting: WaitReasons,
    state: str | None,
    kind: str | None,
    before: int,
    limit: int,
) -> tuple[list[dict[str, Any]], int | None]:
    """Return the matching Packages before that place, and the place before which there may
    be more.
    """
    rows: list[dict[str, Any]] = []
    place = before
    for _ in range(0, LOOKED_AT_MAX, AT_ONCE):
        batch = listing.newest(journal, place, AT_ONCE)
        for sequence, row in _rows(journal, waiting, batch, state, kind):
            rows.append(row)
            if len(rows) == limit:
                return rows, sequence if listing.newest(journal, sequence, 1) else None
        if len(batch) < AT_ONCE:
            return rows, None
        place = batch[-1].sequence
        await trio.lowlevel.checkpoint()
    return rows, place


def _rows(
    journal: Journal,
    waiting: WaitReasons,
    batch: listing.Batch,
    state: str | None,
    kind: str | None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    wanted = [sequence for sequence, status in batch if state in (None, status or WAITING)]
    if not wanted:
        return
    packages = outbound.packages(journal, wanted)
    deliveries, receipts = (
        outbound.deliveries_of(journal, wanted),
        outbound.receipts_of(journal, wanted),
    )
    sent = listing.transmissions(journal, wanted)
    steps = beyond(journal, list(packages.values()))
    for sequence in wanted:
        known = packages.get(sequence)
        if known is None:
            continue
        said = in_list(known)
        if kind in (None, said["kind"]):
            row = {
                **_told(journal, known, said),
                "channels": waiting.deliveries_json(sequence, deliveries[sequence]),
                "credits": _credits(sent[sequence]),
                "receipts": [each.as_json() for each in receipts[sequence]],
                "toName": None if said["to"] is None else in_words(journal, said["to"]),
                "reached": [step._asdict() for step in steps[sequence]],
            }
            yield sequence, row


def _told(journal: Journal, known: Accepted | Known, said: dict[str, Any]) -> dict[str, Any]:
    date, ended = journal.clock.date, known.ended
    return {
        "id": known.id,
        **said,
        "relayed": isinstance(known, Accepted) and bool(known.origin),
        "relayedFor": _origin(journal, known),
        "accepted": date(known.accepted),
        "ended": None if ended is None else date(ended),
        "status": known.status,
    }


def _origin(journal: Journal, known: Accepted | Known) -> str | None:
    """Return the name of the kit whose item this kit relays; None if the item is this kit's."""
    if not isinstance(known, Accepted) or not known.origin:
        return None
    return inbound.station_names(journal).get(known.origin) or f"kit {known.origin}"


def _credits(sent: Sequence[tuple[str, int]]) -> float:
    return round(sum(credits_in_words(detail) * times for detail, times in sent), 2)
