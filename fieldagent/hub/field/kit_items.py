"""Fast path for frequent messages of kits: items over IP that do not belong to an SOS.

The messages of many kits are stored in one commit with as many statements as the messages of one
kit. All other messages are processed one at a time by `mobile_originated`.
"""

from __future__ import annotations

from collections.abc import Sequence

from fieldagent.hub.access import revocation
from fieldagent.hub.contract import Bearer, Device
from fieldagent.hub.field import check_in, positions
from fieldagent.hub.part import KitPosition
from fieldagent.hub.records import contact
from fieldagent.hub.records.contact import Position
from fieldagent.hub.records.fragments import UNAUTHENTICATED_COLUMN
from fieldagent.hub.records.ledger import Posting, add_items_from_kits
from fieldagent.hub.store.contract import Db, insert
from fieldagent.package.package import SOS_PRIORITY, IncidentUpdate, Item, Location, Parcel
from fieldagent.package.reading import KINDS
from fieldagent.package.writing import get_kind
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import Entry, Envelope, Source, compute_fingerprint

MESSAGES_PER_STATEMENT_MAX = 500
"""Messages per set of statements, because SQLite allows 32 766 parameters in one statement."""


@dataclass(frozen=True, slots=True)
class KitItems:
    """A message over a kit's link that contains only items of this kit."""

    device: Device
    entries: list[Entry]


@dataclass(slots=True)
class IntakeResult:
    """Numbers of new and of repeated items in one message."""

    items: int = 0
    duplicates: int = 0


def read_only_items(device: Device, envelope: Envelope) -> KitItems | None:
    """Return the items of a message that contains only items for the fast path, otherwise None."""
    own = envelope.origin in (0, device.id)
    if not own or envelope.not_understood or not all(map(_is_plain, envelope.entries)):
        return None
    return KitItems(device, list(envelope.entries))


def _is_plain(entry: Entry) -> bool:
    content = entry.content
    plain = isinstance(content, Item) and not isinstance(content, IncidentUpdate | Parcel)
    # Recipients and authors that are given by name need individual queries, so such entries are
    # processed separately.
    return plain and not entry.sos and entry.to is None and entry.author is None


def make_posting(device: Device, entry: Entry, item: Item, expires: float) -> Posting:
    """Return a device's item as a posting. An SOS does not expire."""
    return Posting(
        device.workspace,
        device.member,
        item,
        entry.time,
        priority=SOS_PRIORITY if entry.sos else KINDS[get_kind(item)].priority,
        sos=entry.sos,
        back=entry.items_back,
        expires=None if entry.sos else expires,
        source=Source(device.id, entry.sequence),
        to=entry.to,
        asks=entry.wants_receipt,
        author=entry.author,
    )


_ARRIVAL_COLUMNS = ("device", UNAUTHENTICATED_COLUMN, "sequence", "digest", "at", "sos")
_Key = tuple[int, int, bytes]


def add_kit_messages(
    db: Db, messages: Sequence[KitItems], now: float, grace: float, time_to_live: float
) -> list[IntakeResult | None]:
    """Add the new items. For a message of a device that was revoked a moment ago, return None and
    do not store its items.
    """
    revoked = revocation.find_revoked(db, {each.device.id for each in messages})
    good = [each for each in messages if each.device.id not in revoked]
    taken: list[IntakeResult] = []
    for first in range(0, len(good), MESSAGES_PER_STATEMENT_MAX):
        message_slice = good[first : first + MESSAGES_PER_STATEMENT_MAX]
        taken += add_kit_items(db, message_slice, now=now, grace=grace, time_to_live=time_to_live)
    results = iter(taken)
    return [None if each.device.id in revoked else next(results) for each in messages]


def add_kit_items(
    db: Db, messages: Sequence[KitItems], *, now: float, grace: float, time_to_live: float
) -> list[IntakeResult]:
    """Add the new items of each kit, in the order in which the kit sent them."""
    keys = [
        [(each.device.id, entry.sequence, compute_fingerprint(entry)) for entry in each.entries]
        for each in messages
    ]
    new = _record_new(db, [key for each in keys for key in each], now)
    results = [IntakeResult() for _ in messages]
    postings: list[Posting] = []
    newest: dict[int, Position | None] = {each.device.id: None for each in messages}
    seen: list[KitPosition] = []
    for message, own, result in zip(messages, keys, results, strict=True):
        device = message.device
        for entry, key in zip(message.entries, own, strict=True):
            if key not in new:
                result.duplicates += 1
                continue
            new.remove(key)  # Count a second copy of the item in the same commit as a duplicate.
            result.items += 1
            content = entry.content
            assert isinstance(content, Item)
            postings.append(make_posting(device, entry, content, now + time_to_live))
            if isinstance(content, Location):
                position = contact.make_position(content, min(float(entry.time), now))
                before = newest[device.id]
                if before is None or before.at <= position.at:
                    newest[device.id] = position
                if positions.is_current(content):
                    seen.append(positions.make_kit_position(device, content, entry.time, now))
    add_items_from_kits(db, postings, now=now, grace=grace)
    contact.record_contacts(db, newest, Bearer.IP, now)
    positions.act_on_positions(db, seen, now)
    check_in.record_items(
        db, {posting.source.station for posting in postings if posting.source}, now
    )
    return results


def _record_new(db: Db, keys: Sequence[_Key], now: float) -> set[_Key]:
    """Record the arrivals of many items with one statement. Return the keys of items that did not
    arrive before.
    """
    rows = [(device, 0, sequence, digest, now, 0) for device, sequence, digest in keys]
    arrivals = insert(
        db, "arrived", _ARRIVAL_COLUMNS, rows, "device, sequence, digest", conflict="DO NOTHING"
    )
    return {(device, sequence, bytes(digest)) for device, sequence, digest in arrivals}
