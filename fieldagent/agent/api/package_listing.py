"""Pages of `GET /api/packages`: posted Packages, newest first.

Rows are read in batches, so a request never blocks other work, even if the journal is long. A page
with few matches ends early, and contains the place from which the next page continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import trio

from fieldagent.agent.api.queue_listing import BATCH_SIZE, shorten_content
from fieldagent.agent.journal import inbound, listing, outbound
from fieldagent.agent.journal.directory import describe_addressee
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import PackageFacts, StoredPackage
from fieldagent.agent.outbound.reach import list_reached_beyond
from fieldagent.agent.outbound.settlement import parse_credits
from fieldagent.agent.outbound.waiting import WaitReasons
from fieldagent.package.package import Status

WAITING = "waiting"
STATES = (WAITING, *Status)
SEARCHED_PACKAGES_MAX = 10_000
"""Maximum number of Packages that one request examines to fill a page. A rare state or kind may
need several requests."""


async def list_page(
    journal: Journal,
    waiting: WaitReasons,
    state: str | None,
    kind: str | None,
    end_place: int,
    limit: int,
) -> tuple[list[dict[str, Any]], int | None]:
    """Return the matching Packages before `end_place`, and the place from which the next page
    continues.
    """
    rows: list[dict[str, Any]] = []
    place = end_place
    for _ in range(0, SEARCHED_PACKAGES_MAX, BATCH_SIZE):
        batch = listing.list_newest(journal, place, BATCH_SIZE)
        for sequence, row in _list_rows(journal, waiting, batch, state, kind):
            rows.append(row)
            if len(rows) == limit:
                return rows, sequence if listing.list_newest(journal, sequence, 1) else None
        if len(batch) < BATCH_SIZE:
            return rows, None
        place = batch[-1].sequence
        await trio.lowlevel.checkpoint()
    return rows, place


def _list_rows(
    journal: Journal,
    waiting: WaitReasons,
    batch: listing.Batch,
    state: str | None,
    kind: str | None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    matching = [sequence for sequence, status in batch if state in (None, status or WAITING)]
    if not matching:
        return
    packages = outbound.read_packages(journal, matching)
    deliveries, receipts = (
        outbound.read_deliveries_of(journal, matching),
        outbound.list_receipts_of(journal, matching),
    )
    sent = listing.list_transmissions(journal, matching)
    steps = list_reached_beyond(journal, list(packages.values()))
    for sequence in matching:
        package = packages.get(sequence)
        if package is None:
            continue
        content = shorten_content(package)
        if kind in (None, content["kind"]):
            row = {
                **_describe_package(journal, package, content),
                "channels": waiting.describe_deliveries(sequence, deliveries[sequence]),
                "credits": _sum_credits(sent[sequence]),
                "receipts": [each.encode() for each in receipts[sequence]],
                "toName": None
                if content["to"] is None
                else describe_addressee(journal, content["to"]),
                "reached": [step._asdict() for step in steps[sequence]],
            }
            yield sequence, row


def _describe_package(
    journal: Journal, stored_package: StoredPackage | PackageFacts, filters: dict[str, Any]
) -> dict[str, Any]:
    date, ended = journal.clock.date, stored_package.ended
    return {
        "id": stored_package.id,
        **filters,
        "relayed": isinstance(stored_package, StoredPackage) and bool(stored_package.origin),
        "relayedFor": _find_origin(journal, stored_package),
        "accepted": date(stored_package.accepted),
        "ended": None if ended is None else date(ended),
        "status": stored_package.status,
    }


def _find_origin(journal: Journal, stored_package: StoredPackage | PackageFacts) -> str | None:
    """Return the name of the kit that sent the item, or None if the item is this kit's own."""
    if not isinstance(stored_package, StoredPackage) or not stored_package.origin:
        return None
    return (
        inbound.read_station_names(journal).get(stored_package.origin)
        or f"kit {stored_package.origin}"
    )


def _sum_credits(credits_by_channel: Sequence[tuple[str, int]]) -> float:
    return round(sum(parse_credits(detail) * times for detail, times in credits_by_channel), 2)
