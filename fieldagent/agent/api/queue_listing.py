"""Pages of `GET /api/queue`: waiting Packages, oldest first.

Rows are read in batches, so a request never blocks other work, even if many Packages wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import trio

from fieldagent.agent.api.content import DAMAGED_CONTENT, TEXT_MAX, describe_content
from fieldagent.agent.journal import listing, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import PackageFacts, StoredPackage
from fieldagent.agent.outbound.waiting import WaitReasons
from fieldagent.package.package import Channel

PAGE_MAX = 1000
"""Maximum and default number of Packages on one page."""
BATCH_SIZE = 50
"""Number of Packages in one batch, after which other tasks may run."""


async def list_page(
    journal: Journal,
    waiting: WaitReasons,
    channels: Collection[Channel],
    start_place: int,
    limit: int,
) -> tuple[list[dict[str, Any]], int | None]:
    """Return the waiting Packages after `start_place`, and the place from which the next page
    continues.
    """
    listed_rows: list[dict[str, Any]] = []
    sequences = listing.list_waiting_behind(journal, channels, start_place, limit + 1)
    for start in range(0, min(limit, len(sequences)), BATCH_SIZE):
        listed_rows += _list_rows(
            journal, waiting, sequences[start : min(start + BATCH_SIZE, limit)]
        )
        await trio.lowlevel.checkpoint()
    last = sequences[limit - 1] if len(sequences) > limit else None
    return listed_rows, last


def _list_rows(
    journal: Journal, waiting: WaitReasons, sequences: Sequence[int]
) -> Iterator[dict[str, Any]]:
    date = journal.clock.date
    packages, deliveries = (
        outbound.read_packages(journal, sequences),
        outbound.read_deliveries_of(journal, sequences),
    )
    for sequence in sequences:
        if (package := packages.get(sequence)) is not None:
            stored_package = package if isinstance(package, StoredPackage) else None
            expires = stored_package and stored_package.expires
            yield {
                "id": package.id,
                **shorten_content(package),
                "collapseKey": stored_package and stored_package.package.collapse_key,
                "accepted": date(package.accepted),
                "expires": None if expires is None else date(expires),
                "channels": waiting.describe_deliveries(sequence, deliveries[sequence]),
            }


def shorten_content(stored_package: StoredPackage | PackageFacts) -> dict[str, Any]:
    """Return the content of a Package for a list, with a shortened text. A damaged Package is
    marked.
    """
    return (
        describe_content(stored_package.package, TEXT_MAX)
        if isinstance(stored_package, StoredPackage)
        else DAMAGED_CONTENT
    )
