"""Content of Packages, and the pages of `GET /api/queue` (waiting Packages, oldest first) and `GET
/api/packages` (posted Packages, newest first).

Rows are read in batches, so a request never blocks other work, even if many Packages wait or the
journal is long. A page of `/api/packages` with few matches may end before its limit is reached. It
also contains the start of the next page.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import trio

from fieldagent.agent.journal import inbound, listing, outbound
from fieldagent.agent.journal.directory import describe_addressee
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import PackageFacts, StoredPackage
from fieldagent.agent.outbound.package_state import list_reached, list_reached_beyond
from fieldagent.agent.outbound.settlement import parse_credits
from fieldagent.agent.outbound.waiting import WaitReasons
from fieldagent.package.package import (
    Channel,
    CheckIn,
    CommandAnswer,
    IncidentUpdate,
    Item,
    Location,
    Message,
    Package,
    Parcel,
    Status,
    ToHub,
    Waypoint,
)
from fieldagent.package.payload import describe_incident_update
from fieldagent.package.writing import format_minutes, get_kind

TEXT_MAX = 500
"""Maximum number of characters of a text in a list. `GET /api/package/{id}` shows the complete
text."""
DAMAGED_CONTENT: dict[str, Any] = {
    "kind": "damaged",
    "sos": False,
    "priority": None,
    "text": "damaged on the disk: post it again",
    "position": None,
    "to": None,
    "from": None,
    "receipt": None,
    "incident": None,
}
"""Content of a Package that can no longer be read."""


def describe_content(package: Package, maximum: int | None = None) -> dict[str, Any]:
    """Return the content of a Package in the API's form. A text of more than `maximum` characters
    is cut, and ends with `…`. None means no limit.
    """
    text = _find_text(package.item)
    item = package.item if isinstance(package.item, Location | Waypoint) else None
    return {
        "kind": get_kind(package.item),
        "sos": package.sos,
        "priority": package.priority,
        "text": text
        if text is None or maximum is None or len(text) <= maximum
        else text[:maximum] + "…",
        "position": None if item is None else [item.latitude, item.longitude],
        "to": package.to,
        "from": package.author,
        "receipt": "read" if package.wants_receipt else None,
        "incident": _describe_incident_update(package.item),
    }


def describe_with_names(journal: Journal, package: Package) -> dict[str, Any]:
    """Return a Package's content, with the names of its addressee and author."""
    names = {"toName": package.to, "fromName": package.author}
    return describe_content(package) | {
        name: None if person_name is None else describe_addressee(journal, person_name)
        for name, person_name in names.items()
    }


def list_stages(journal: Journal, stored_package: PackageFacts) -> list[dict[str, Any]]:
    """Return the stages that a Package has reached, in the API's form."""
    return [step._asdict() for step in list_reached(journal, stored_package)]


def _describe_incident_update(item: Item | ToHub) -> dict[str, str | None] | None:
    """Return the parts of an incident update, so that a page can show it in the reader's language.
    Return None for other items.
    """
    if not isinstance(item, IncidentUpdate):
        return None
    return {"state": item.state.value, "by": item.by or None, "text": item.text or None}


def _find_text(item: Item | ToHub) -> str | None:
    if isinstance(item, Message):
        return item.content
    if isinstance(item, Waypoint):
        return item.name if item.notes is None else f"{item.name}: {item.notes}"
    if isinstance(item, IncidentUpdate):
        return describe_incident_update(item)
    if isinstance(item, Parcel):
        return f"from the hub for station {item.station}" if item.station else "for the hub"
    if isinstance(item, CheckIn):
        return (
            "done" if item.within_s is None else f"check-in every {format_minutes(item.within_s)}"
        )
    if isinstance(item, CommandAnswer):
        return f"to command {item.number}: {item.outcome.name.lower()}"
    return None


PAGE_MAX = 1000
"""Maximum and default number of Packages on one page."""
BATCH_SIZE = 50
"""Number of Packages in one batch. Other tasks may run between two batches."""


async def list_queue_page(
    journal: Journal,
    waiting: WaitReasons,
    channels: Collection[Channel],
    start_place: int,
    limit: int,
) -> tuple[list[dict[str, Any]], int | None]:
    """Return at most `limit` waiting Packages with a sequence above `start_place`, oldest first.
    Also return the `start_place` of the next page, or None if this is the last page.
    """
    listed_rows: list[dict[str, Any]] = []
    sequences = listing.list_waiting_behind(journal, channels, start_place, limit + 1)
    for start in range(0, min(limit, len(sequences)), BATCH_SIZE):
        listed_rows += _list_queue_rows(
            journal, waiting, sequences[start : min(start + BATCH_SIZE, limit)]
        )
        await trio.lowlevel.checkpoint()
    last = sequences[limit - 1] if len(sequences) > limit else None
    return listed_rows, last


def _list_queue_rows(
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


WAITING = "waiting"
STATES = (WAITING, *Status)
SEARCHED_PACKAGES_MAX = 10_000
"""Maximum number of Packages that one request examines to fill a page. A rare state or kind may
need several requests."""


async def list_package_page(
    journal: Journal,
    waiting: WaitReasons,
    state: str | None,
    kind: str | None,
    end_place: int,
    limit: int,
) -> tuple[list[dict[str, Any]], int | None]:
    """Return at most `limit` matching Packages with a sequence below `end_place`, newest first.
    None as `state` or `kind` matches all. Also return the `end_place` of the next page, or None if
    this is the last page.
    """
    rows: list[dict[str, Any]] = []
    place = end_place
    for _ in range(0, SEARCHED_PACKAGES_MAX, BATCH_SIZE):
        batch = listing.list_newest(journal, place, BATCH_SIZE)
        for sequence, row in _list_package_rows(journal, waiting, batch, state, kind):
            rows.append(row)
            if len(rows) == limit:
                return rows, sequence if listing.list_newest(journal, sequence, 1) else None
        if len(batch) < BATCH_SIZE:
            return rows, None
        place = batch[-1].sequence
        await trio.lowlevel.checkpoint()
    return rows, place


def _list_package_rows(
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
    journal: Journal, stored_package: StoredPackage | PackageFacts, content: dict[str, Any]
) -> dict[str, Any]:
    date, ended = journal.clock.date, stored_package.ended
    return {
        "id": stored_package.id,
        **content,
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
