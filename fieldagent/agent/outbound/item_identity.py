"""Checks whether a peer's report about an item number means our Package with that number.

The peer may mean another item with the same number: from before the journal was lost, from another
kit with our station number, or from a hub's restored database.
"""

from __future__ import annotations

from fieldagent.agent.journal.records import StoredPackage
from fieldagent.package.package import Package, get_position_time
from fieldagent.wire.envelope import (
    Ack,
    Entry,
    Receipt,
    Report,
    UnauthenticatedMark,
    compute_fragments_digest,
    compute_item_digest,
    encode,
)
from fieldagent.wire.fragments import cut_into_fragments, split


def make_entry(stored_package: StoredPackage) -> Entry:
    """Return the entry as it is sent, with the item number of its original sender."""
    number = stored_package.origin_sequence if stored_package.origin else stored_package.sequence
    dated = stored_package.accepted if stored_package.dated is None else stored_package.dated
    return make_numbered_entry(number, stored_package.package, dated, stored_package.back)


def make_marked_entries(stored_package: StoredPackage) -> tuple[Entry, ...]:
    """Return the entry. For the SOS of an unauthenticated handheld, also return an entry with an
    UnauthenticatedMark.
    """
    entry = make_entry(stored_package)
    if not stored_package.is_unproved:
        return (entry,)
    return entry, Entry(entry.sequence, UnauthenticatedMark(), entry.time)


def make_numbered_entry(
    item_number: int, package: Package, date: float, items_back: int = 0
) -> Entry:
    """Return the entry of a Package with the item number `item_number`. `date` (Unix time) is used
    if the item has no time of its own. `items_back` is used only for an SOS.
    """
    moment = get_position_time(package.item)
    time = int(date if moment is None else moment.timestamp())
    return Entry(
        item_number,
        package.item,
        time,
        package.sos,
        items_back if package.sos else 0,
        package.to,
        package.wants_receipt,
        package.author,
    )


def is_report_about(
    stored_package: StoredPackage, content: Receipt | Report | Ack, capacity: int | None = None
) -> bool:
    """Return True if the report `content` is about this item. If `capacity` (the size of a complete
    envelope) is not None, fragments count only if they were cut to this size.
    """
    entry = make_entry(stored_package)
    if isinstance(content, Receipt) or (isinstance(content, Ack) and content.whole):
        return content.digest == compute_item_digest(entry)
    entry_bytes = encode([entry])
    fragments = (
        cut_into_fragments(entry_bytes, content.count)
        if capacity is None
        else split(entry_bytes, capacity)
    )
    if len(fragments) != content.count:
        return False
    slices = [fragment.payload for fragment in fragments]
    arrived_segments = [segment for index, segment in enumerate(slices) if index in content.arrived]
    return content.digest == compute_fragments_digest(arrived_segments)
