"""Sends the content of this kit's journal to a hub whose database was lost.

The backup contains the items that left for the hub and the items that came from the hub, as long as
the journal keeps them (`keep-ended-days`, `keep-ended-count`). Items from before the kit got the
hub's token are left out, so that the hub never receives items of another hub.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf

import trio

from fieldagent.agent.channels.contract import Outbox
from fieldagent.agent.journal import outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import StoredPackage
from fieldagent.agent.outbound.item_identity import make_entry, make_marked_entries
from fieldagent.package.package import IncidentState, IncidentUpdate, Item, Parcel
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.backup_note import (
    COPIES_BYTES,
    DIGEST_BYTES,
    PAGE,
    BackupSummary,
    Copies,
    Copy,
    Direction,
    HeldItem,
    Inventory,
    InventoryRequest,
    InventoryRow,
    ItemRequest,
)
from fieldagent.wire.envelope import Entry, Envelope, Source, compute_fingerprint, decode, encode
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.link import BODY_BYTES

IDLE_CHECK_INTERVAL_S = 1.0
"""Seconds between two checks if items still wait to be sent."""
_HEAD = 64
"""Largest size in bytes of a note with one copy, not counting the copy itself."""
_LEFT_SQL = "channel IN ('Cellular', 'Satellite') AND status = 'Delivered'"
"""SQL condition: the Package left for the hub on this channel."""


@dataclass(frozen=True, slots=True)
class HubBackup:
    """Backup for one hub. `hub` identifies the hub: it contains the first bytes of the digest of
    the hub's token.
    """

    journal: Journal
    outbox: Outbox
    hub: bytes

    async def make_summary(self) -> BackupSummary:
        """Return the summary that the hub receives over each new link."""
        hub_rows = self.journal.read("SELECT 1 FROM backup_since WHERE hub = ?", self.hub)
        if not hub_rows:
            await self.journal.persist(partial(_record_hub, hub=self.hub))
        sent, hours = _find_last_sent(self.journal)
        return BackupSummary(sent, hours, _find_last_received(self.journal))

    async def answer(self, request: InventoryRequest | ItemRequest) -> Inventory | Copies:
        """Wait until the outbox has nothing to send, and then return the inventory or the copies
        that the hub requests.
        """
        while await self._has_more_urgent():
            await trio.sleep(IDLE_CHECK_INTERVAL_S)
        if isinstance(request, InventoryRequest):
            listing = _list_sent if request.direction is Direction.SENT else _list_received
            return listing(self.journal, request.after)
        copy = _copy_sent if request.direction is Direction.SENT else _copy_received
        return Copies(request.direction, _choose_fitting(self.journal, copy, request.places))

    async def _has_more_urgent(self) -> bool:
        with trio.CancelScope(deadline=-inf) as at_once:
            await self.outbox.wait_until_ready()
        return not at_once.cancelled_caught


def _record_hub(db: sqlite3.Connection, hub: bytes) -> None:
    """Record the token of a new hub, and the numbers of the last items before it. The new hub must
    not receive those items.
    """
    db.execute(
        "INSERT OR REPLACE INTO backup_since SELECT 1, ?,"
        f" (SELECT coalesce(max(sequence), 0) FROM leg WHERE {_LEFT_SQL}),"
        " (SELECT coalesce(max(number), 0) FROM inbound WHERE copy IS NOT NULL)",
        (hub,),
    )


def _find_earlier_hub_limits(journal: Journal) -> tuple[int, int]:
    """Return the last sequence, and the last payload number, that an earlier hub may know. The
    present hub must receive only later items.
    """
    rows = journal.read("SELECT sequence, number FROM backup_since")
    return rows[0] if rows else (2**62, 2**62)


def _find_last_sent(journal: Journal) -> tuple[HeldItem, int]:
    for sequence, ended_at in journal.read(
        "SELECT sequence, ended FROM leg WHERE channel = 'Cellular' AND status = 'Delivered'"
        " AND sequence > ? AND sequence NOT IN (SELECT sequence FROM carried)"
        " ORDER BY ended DESC, sequence DESC LIMIT 16",
        _find_earlier_hub_limits(journal)[0],
    ):
        package = outbound.read_packages(journal, [sequence]).get(sequence)
        if isinstance(package, StoredPackage) and _is_kept(package):
            hours = int(max(0.0, journal.clock.now() - ended_at) // 3600)
            return HeldItem(sequence, _digest(make_entry(package))), hours
    return HeldItem(), 0


def _find_last_received(journal: Journal) -> HeldItem:
    rows = journal.read(
        "SELECT sequence, digest FROM inbound WHERE copy IS NOT NULL AND number > ?"
        " ORDER BY number DESC LIMIT 1",
        _find_earlier_hub_limits(journal)[1],
    )
    for sequence, digest in rows:
        return HeldItem(sequence, bytes(digest)[:DIGEST_BYTES])
    return HeldItem()


def _is_kept(stored_package: StoredPackage) -> bool:
    """Return True if the hub stores items of the kind of this Package."""
    item = stored_package.package.item
    if isinstance(item, IncidentUpdate):
        return item.state is not IncidentState.OPEN
    return isinstance(item, Item) and not isinstance(item, Parcel)


def _digest(entry: Entry) -> bytes:
    return compute_fingerprint(entry)[:DIGEST_BYTES]


def _list_sent(journal: Journal, start_place: int) -> Inventory:
    rows: list[InventoryRow] = []
    place = max(start_place, _find_earlier_hub_limits(journal)[0])
    while len(rows) < PAGE:
        some = journal.read(
            f"SELECT sequence, min(ended) FROM leg WHERE {_LEFT_SQL} AND sequence > ?"
            " GROUP BY sequence ORDER BY sequence LIMIT ?",
            *(place, PAGE - len(rows)),
        )
        if not some:
            break
        ended_at_by_sequence = dict(some)
        place = max(ended_at_by_sequence)
        for sequence, package in sorted(
            outbound.read_packages(journal, list(ended_at_by_sequence)).items()
        ):
            if isinstance(package, StoredPackage) and _is_kept(package):
                at = max(0, int(journal.clock.date(ended_at_by_sequence[sequence])))
                entry = make_entry(package)
                rows.append(
                    InventoryRow(sequence, package.origin, entry.sequence, _digest(entry), at)
                )
    return Inventory(
        Direction.SENT, start_place, tuple(rows), (0, 0) if start_place else _find_dropped(journal)
    )


def _find_dropped(journal: Journal) -> tuple[int, int]:
    """Return the first number of the items that the journal no longer keeps, and the number after
    the last one. Return (0, 0) if there are none.
    """
    ((first_number,),) = journal.read("SELECT number FROM beginning")
    ((oldest,),) = journal.read("SELECT min(sequence) FROM package")
    first = max(first_number, _find_earlier_hub_limits(journal)[0]) + 1
    end = outbound.compute_next_sequence(journal) if oldest is None else oldest
    return (first, end) if first < end else (0, 0)


def _list_received(journal: Journal, start_place: int) -> Inventory:
    rows: list[InventoryRow] = []
    place = max(start_place, _find_earlier_hub_limits(journal)[1])
    while len(rows) < PAGE:
        some = journal.read(
            "SELECT number, sequence, digest, copy, received FROM inbound"
            " WHERE copy IS NOT NULL AND number > ? ORDER BY number LIMIT ?",
            *(place, PAGE - len(rows)),
        )
        if not some:
            break
        place = some[-1][0]
        for number, sequence, digest, copy, received in some:
            if (envelope := _read_whole(copy)) is not None:
                at = max(0, int(journal.clock.date(received)))
                details = envelope.origin, sequence, bytes(digest)[:DIGEST_BYTES], at
                rows.append(InventoryRow(number, *details))
    return Inventory(Direction.GOT, start_place, tuple(rows))


def _read_whole(copy: bytes) -> Envelope | None:
    """Return the envelope of a copy, or None if the copy is damaged on disk. An exception would end
    the link to the hub.
    """
    try:
        envelope = decode(bytes(copy))
    except RemoteProtocolError:
        return None
    return envelope if envelope.entries and not envelope.not_understood else None


_Copier = Callable[[Journal, int], Copy]


def _choose_fitting(journal: Journal, copy: _Copier, places: Sequence[int]) -> tuple[Copy, ...]:
    """Return the requested copies in order: as many as fit into one note, but at least one."""

    def fill() -> Iterator[Copy]:
        size = 0
        for place in places:
            backup = copy(journal, place)
            size += len(backup.body)
            if size > COPIES_BYTES and size > len(backup.body):
                return
            yield backup if len(backup.body) <= BODY_BYTES - _HEAD else Copy(place, b"")

    return tuple(fill())


def _copy_sent(journal: Journal, place: int) -> Copy:
    package = outbound.read_packages(journal, [place]).get(place)
    if (
        place <= _find_earlier_hub_limits(journal)[0]
        or not isinstance(package, StoredPackage)
        or not _is_kept(package)
    ):
        return Copy(place, b"")
    entry, *marks = make_marked_entries(package)
    body = encode([entry, *marks], origin=package.origin)
    return Copy(
        place, body, _get_state(journal, package.origin, entry.sequence - entry.items_back, entry)
    )


def _copy_received(journal: Journal, place: int) -> Copy:
    rows = journal.read("SELECT copy FROM inbound WHERE number = ? AND copy IS NOT NULL", place)
    if place <= _find_earlier_hub_limits(journal)[1] or not rows:
        return Copy(place, b"")
    body = bytes(rows[0][0])
    if (envelope := _read_whole(body)) is None:
        return Copy(place, b"")
    entry, *other_entries = envelope.entries
    for each in other_entries:
        if isinstance(each.content, Source):
            route = each.content
            number = route.sequence - entry.items_back
            return Copy(place, body, _get_state(journal, route.station, number, entry))
    return Copy(place, body)


def _get_state(journal: Journal, station: int, incident: int, entry: Entry) -> str:
    """Return the known state of an SOS item's incident; empty for other items."""
    if not entry.sos:
        return ""
    if station:
        sql = "SELECT state FROM heard_incident WHERE station = ? AND number = ?"
        rows = journal.read(sql, station, incident)
    else:
        rows = journal.read("SELECT state FROM incident WHERE number = ?", incident)
    return str(rows[0][0]) if rows else ""
