"""Recovery of a restored database over the link of one kit.

1. The kit's summary (`BackupSummary`) contains the last items that the kit sent and received. If
   the hub does not know these items, its database may be an older backup, or the summary is false.
   So the hub skips numbers of this kit only, and asks this kit for its items. `fieldagent hub
   database restored` does the same for every kit.
2. The hub asks the kit for a list of its items, and then for the missing items, page by page.
3. A kit authenticates the items that it sent itself. Another kit's copy of such an item, or of a
   push, is marked as unauthenticated until the kit that sent the item delivers it.
4. An item is stored with its original identity, times and number. Webhooks do not get the item,
   and the hub does not pay for its delivery. A kit that had the item before recognises it. If the
   kit reports that an SOS is not closed, the SOS is open again and notifies people.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import field, replace

import trio

from fieldagent.hub.access.device_keys import derive_proof_keys
from fieldagent.hub.access.directory import is_member
from fieldagent.hub.contract import Bearer, Device
from fieldagent.hub.field.arrival import find_doubt, find_neighbour
from fieldagent.hub.field.kit_items import make_posting
from fieldagent.hub.field.mobile_originated import resolve_names
from fieldagent.hub.records import contact, kit_report, ledger, numbering, rebuild
from fieldagent.hub.records.fragments import UNAUTHENTICATED_COLUMN
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.records.stored_entry import decode_stored_entry
from fieldagent.hub.store.contract import Db, Store, insert, make_membership
from fieldagent.package.package import SOS_PRIORITY, IncidentUpdate, Item, Location, Parcel
from fieldagent.package.reading import KINDS
from fieldagent.package.writing import get_kind
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.backup_note import (
    DIGEST_BYTES,
    BackupNote,
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
from fieldagent.wire.envelope import (
    Entry,
    Source,
    UnauthenticatedMark,
    compute_fingerprint,
    decode,
    encode,
)
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.proof import is_update_proved

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeepingTimes:
    """Seconds for which the hub stores items, and seconds after which an unsent item expires."""

    keep: float
    time_to_live: float


KEEPING_TIMES = KeepingTimes(30 * 86_400.0, 86_400.0)


@dataclass(slots=True)
class Rebuilding:
    """Recovery of items over one link, with the question that the kit has not answered yet."""

    store: Store
    device: Device
    keeping: KeepingTimes
    rows: dict[int, InventoryRow] = field(default_factory=dict)
    """Rows of the current page whose items the hub does not have, by place."""
    page: Inventory | None = None
    is_asked: bool = False
    _turn: trio.Lock = field(default_factory=trio.Lock)
    """Prevents a new question while an answer is processed."""

    async def choose_question(self) -> InventoryRequest | ItemRequest | None:
        """Return the next question to the kit, or None if there is none."""
        async with self._turn:
            return await self._choose_question()

    async def _choose_question(self) -> InventoryRequest | ItemRequest | None:
        if self.is_asked:
            return None
        if self.page is not None:
            self.is_asked = True
            return ItemRequest(self.page.direction, tuple(self.rows))
        progress = await self.store.read_together(_read, self.device.id)
        if progress is None or not progress.is_open:
            return None
        self.is_asked = True
        return InventoryRequest(progress.direction, progress.place)

    async def process_answer(self, kit_answer: BackupNote, now: float) -> None:
        """Process the kit's answer. Ignore an answer if the hub has asked no question."""
        async with self._turn:
            await self._process_answer(kit_answer, now)

    async def _process_answer(self, kit_answer: BackupNote, now: float) -> None:
        if isinstance(kit_answer, BackupSummary):
            if await self.store.commit(lambda db: self._compare_summary(db, kit_answer, now)):
                log.error(
                    "%s has exchanged items that this database does not have: the hub"
                    " requests them again. If the database was restored from an older copy,"
                    " run `fieldagent hub database restored`",
                    self.device.name,
                )
        elif isinstance(kit_answer, Inventory) and self.is_asked and self.page is None:
            self.is_asked = False
            await self._process_inventory(kit_answer, now)
        elif isinstance(kit_answer, Copies) and self.is_asked and self.page is not None:
            self.is_asked = False
            await self._process_copies(kit_answer, now)

    async def _process_inventory(self, inventory: Inventory, now: float) -> None:
        missing = await self.store.read(
            lambda db: find_missing(db, self.device, inventory, now - self.keeping.keep)
        )
        self.page, self.rows = inventory, {row.place: row for row in missing}

        def store_listed(db: Db) -> str:
            db.announce(kit_report.get_topic(self.device.id))
            return "" if self.rows else self._end_page(db, inventory, now)

        self._log_progress(await self.store.commit(store_listed))
        if not self.rows:
            self.page = None

    async def _process_copies(self, kit_copies: Copies, now: float) -> None:
        page = self.page
        assert page is not None
        copies = [each for each in kit_copies.copies if each.place in self.rows]
        # An answer without copies means that the kit has none of the requested items.
        copies = copies or [Copy(copy_place, b"") for copy_place in self.rows]
        remaining = self.rows.keys() - {each.place for each in copies}

        def add_copies(db: Db) -> str:
            results = [add_copy(db, self, each, now) for each in copies]
            rebuild.add_copy_counts(db, self.device.id, results.count(True), results.count(False))
            db.announce(kit_report.get_topic(self.device.id))
            return "" if remaining else self._end_page(db, page, now)

        self._log_progress(await self.store.commit(add_copies))
        self.rows = {
            copy_place: row for copy_place, row in self.rows.items() if copy_place in remaining
        }
        if not self.rows:
            self.page = None

    def _end_page(self, db: Db, page: Inventory, now: float) -> str:
        device = self.device
        rebuild.add_listed_counts(
            db, device.id, len(page.rows), _compute_dropped(db, device.id, page)
        )
        if not page.is_last:
            rebuild.store_place(db, device.id, page.direction, page.rows[-1].place)
        elif page.direction is Direction.SENT:
            rebuild.store_place(db, device.id, Direction.GOT, 0)
        else:
            return rebuild.finish_rebuild(db, device.id, device.workspace, device.name, now)
        return ""

    def _log_progress(self, progress: str) -> None:
        if progress:
            log.warning("%s", progress)

    def _compare_summary(self, db: Db, summary: BackupSummary, now: float) -> bool:
        """Return True if this is the first summary that shows that the database was restored."""
        device = self.device.id
        if summary.hours * 3600 > self.keeping.keep or is_known(db, device, summary):
            return False
        if _is_buried(db, device, summary.hours, now):
            return False
        summary_bytes = replace(summary, hours=0).encode()
        progress = rebuild.read_progress(db, device)
        if progress is not None and (progress.is_open or progress.held == summary_bytes):
            return False
        numbering.skip_device_numbers(db, device, now)
        rebuild.begin_recovery(db, device, summary_bytes, now)
        return True


def _read(db: Db, devices: Sequence[int]) -> list[rebuild.Rebuild | None]:
    return [rebuild.read_progress(db, device) for device in devices]


def _digest(entry: Entry) -> bytes:
    return compute_fingerprint(entry)[:DIGEST_BYTES]


def is_known(db: Db, device: int, summary: BackupSummary) -> bool:
    """Return True if the hub knows the last items that the kit sent and received, or may have
    deleted them.
    """
    return _has_item(db, device, summary.last_sent) and _is_delivered(db, device, summary.last_got)


def _is_buried(db: Db, device: int, hours: int, now: float) -> bool:
    """Return True if a message of the device became a dead letter about `hours` hours ago. The hub
    acknowledged such a message although it stored no item.
    """
    around = (now - (hours + 2) * 3600, now - (hours - 1) * 3600)
    sql = "SELECT 1 FROM dead_letter WHERE device = ? AND received BETWEEN ? AND ? LIMIT 1"
    return bool(db.execute(sql, device, *around))


def _has_item(db: Db, device: int, held_item: HeldItem) -> bool:
    rows = db.execute(
        f"SELECT digest FROM arrived WHERE device = ? AND {UNAUTHENTICATED_COLUMN} = 0 AND"
        " sequence = ?",
        *(device, held_item.number),
    )
    return not held_item.number or held_item.digest in {
        bytes(row[0])[:DIGEST_BYTES] for row in rows
    }


def _is_delivered(db: Db, device: int, got: HeldItem) -> bool:
    ((next_number,),) = db.execute("SELECT next_sequence FROM device WHERE id = ?", device)
    if got.number >= next_number:
        return False
    digests = _list_digests(db, device, [got.number])
    return got.number not in digests or digests[got.number] == got.digest


def _list_digests(db: Db, device: int, numbers: Sequence[int]) -> dict[int, bytes]:
    """Return the digests of the items with deliveries to a device, by their numbers for the
    device.
    """
    membership, these = make_membership(db, numbers)
    rows = db.execute(
        "SELECT delivery.sequence, body FROM delivery JOIN item ON item.id = delivery.item"
        f" WHERE delivery.device = ? AND delivery.sequence {membership}",
        *(device, *these),
    )
    return {
        number: _digest(replace(decode_stored_entry(body), sequence=number))
        for number, body in rows
    }


def find_missing(db: Db, device: Device, inventory: Inventory, since: float) -> list[InventoryRow]:
    """Return the listed items that the hub does not have. Items older than `since` are not
    included, because the hub deleted them on purpose.
    """
    rows = [row for row in inventory.rows if row.at > since]
    if not rows:
        return []
    if inventory.direction is Direction.GOT:
        digests = _list_digests(db, device.id, [row.number for row in rows])
        # Items of deleted accounts stay deleted.
        member_flags = {row.origin: is_member(db, device.workspace, row.origin) for row in rows}
        return [r for r in rows if member_flags[r.origin] and digests.get(r.number) != r.digest]
    device_by_origin = {row.origin: _find_device(db, device, row.origin) for row in rows}
    membership, devices = make_membership(
        db, {each.id for each in device_by_origin.values() if each is not None} or {0}
    )
    numbered, numbers = make_membership(db, [row.number for row in rows])
    known_items = {
        (origin, number, bytes(digest)[:DIGEST_BYTES])
        for origin, doubtful, number, digest in db.execute(
            f"SELECT device, {UNAUTHENTICATED_COLUMN}, sequence, digest FROM arrived WHERE device"
            f" {membership}"
            f" AND {UNAUTHENTICATED_COLUMN} IN (0, 1) AND sequence {numbered}",
            *(*devices, *numbers),
        )
        # The kit now authenticates its own items, which the hub has only as copies from other kits.
        if not (doubtful and origin == device.id)
    }
    return [
        row
        for row in rows
        if (origin := device_by_origin[row.origin]) is not None
        and (origin.id, row.number, row.digest) not in known_items
    ]


def _find_device(db: Db, device: Device, origin: int) -> Device | None:
    return device if origin in (0, device.id) else find_neighbour(db, device, origin)


def _compute_dropped(db: Db, device: int, inventory: Inventory) -> int:
    """Return the largest possible number of items that the kit sent after the backup of the
    database was made and that the kit no longer has.
    """
    first, end = inventory.dropped
    rows = db.execute(
        f"SELECT max(sequence) FROM arrived WHERE device = ? AND {UNAUTHENTICATED_COLUMN} = 0 AND"
        " sequence < ?",
        *(device, end),
    )
    newest = rows[0][0]
    return 0 if newest is None else max(0, end - max(first, newest + 1))


def add_copy(db: Db, link: Rebuilding, copy: Copy, now: float) -> bool:
    """Add one item from a kit's copy. Return True if the hub has the item now."""
    if not copy.body:
        return False
    row = link.rows[copy.place]
    try:
        envelope = decode(copy.body)
    except RemoteProtocolError:
        return False
    if not envelope.entries or envelope.not_understood:
        return False
    entry, *other_entries = envelope.entries
    details = [each.content for each in other_entries]
    if not isinstance(entry.content, Item) or isinstance(entry.content, Parcel):
        return False
    if link.page is not None and link.page.direction is Direction.SENT:
        device_of_origin = _find_device(db, link.device, envelope.origin)
        is_marked = any(isinstance(each, UnauthenticatedMark) for each in details)
        return device_of_origin is not None and _add_sent_copy(
            db, link, device_of_origin, entry, is_marked, copy, row.at, now
        )
    return _add_received_copy(db, link, entry, details, copy, row, now)


def _add_sent_copy(
    db: Db,
    link: Rebuilding,
    author: Device,
    entry: Entry,
    is_marked: bool,
    copy: Copy,
    at: float,
    now: float,
) -> bool:
    """Store an item that the kit had sent. `is_marked` is true for an SOS of an unauthenticated
    handheld.
    """
    is_copy = author.id != link.device.id
    doubt = find_doubt(db, link.device, author, True) if is_copy else ""
    content = entry.content
    assert isinstance(content, Item)
    if doubt and not (entry.sos or isinstance(content, IncidentUpdate)):
        return False
    if not _record_arrival(db, author.id, entry, at, bool(doubt)):
        return True
    if not doubt and (item := _find_item(db, author, entry)) is not None:
        db.execute("UPDATE item SET unauthenticated = ? WHERE id = ?", int(is_marked), item)
        return True
    is_proved_update = isinstance(content, IncidentUpdate) and is_update_proved(
        content, derive_proof_keys(db, author.id)
    )
    posting = make_posting(author, entry, content, at + link.keeping.time_to_live)
    is_doubtful = is_marked or bool(doubt)
    posting = replace(posting, unauthenticated=is_doubtful and not is_proved_update)
    posting, _ = resolve_names(db, posting)
    is_closed = copy.state == "closed"
    item = ledger.readd_item(db, posting, at=at, now=now, is_closed=is_closed)
    if isinstance(content, Location) and not doubt:
        contact.store_position(db, author.id, content, entry.time, now)
    if is_copy:
        ledger.confirm(db, item, link.device.id, Bearer.IP, now)
    return True


def _record_arrival(db: Db, device: int, entry: Entry, at: float, is_doubtful: bool) -> bool:
    """Record an entry that a kit has returned. Return False if the same entry arrived before."""
    columns = ("device", UNAUTHENTICATED_COLUMN, "sequence", "digest", "at", "sos")
    row = (device, int(is_doubtful), entry.sequence, compute_fingerprint(entry), at, int(entry.sos))
    return bool(insert(db, "arrived", columns, [row], "sequence", conflict="DO NOTHING"))


def _add_received_copy(
    db: Db,
    link: Rebuilding,
    entry: Entry,
    details: Sequence[object],
    copy: Copy,
    row: InventoryRow,
    now: float,
) -> bool:
    """Store an item that the kit had received from the hub: an item of another kit, or a push."""
    if not is_member(db, link.device.workspace, row.origin):
        return False
    source = next((each for each in details if isinstance(each, Source)), None)
    if source is None:
        item: int | None = _add_push(db, link, entry, row, now)
    else:
        item = _find_sender(db, link, source, entry, copy, row, now)
    if item is None:
        return False
    ledger.record_earlier_delivery(db, item, link.device.id, row.number, row.at)
    return True


def _find_sender(
    db: Db,
    link: Rebuilding,
    source: Source,
    entry: Entry,
    copy: Copy,
    row: InventoryRow,
    now: float,
) -> int | None:
    neighbour = find_neighbour(db, link.device, source.station)
    if neighbour is None:
        return None
    own = replace(entry, sequence=source.sequence)
    content = entry.content
    assert isinstance(content, Item)
    item = _find_item(db, neighbour, own)
    if item is not None:
        return item
    # The kit that sent the item has not delivered it yet. Only that delivery would authenticate the
    # item.
    if not _record_arrival(db, neighbour.id, own, row.at, is_doubtful=True):
        return None
    posting = make_posting(neighbour, own, content, row.at + link.keeping.time_to_live)
    posting, _ = resolve_names(db, replace(posting, unauthenticated=True))
    is_closed = copy.state == "closed"
    return ledger.readd_item(db, posting, at=row.at, now=now, is_closed=is_closed)


def _find_item(db: Db, author: Device, entry: Entry) -> int | None:
    """Return the id of the device's item, whichever kit delivered it. Return None if the hub does
    not have the item.
    """
    for item, body in db.execute(
        "SELECT id, body FROM item WHERE workspace = ? AND source_device = ?"
        " AND source_sequence = ? ORDER BY id DESC",
        *(author.workspace, author.id, entry.sequence),
    ):
        if _digest(replace(decode_stored_entry(body), sequence=entry.sequence)) == _digest(entry):
            return int(item)
    return None


def _add_push(db: Db, link: Rebuilding, entry: Entry, row: InventoryRow, now: float) -> int:
    """Add a push that the kit received. Its other recipients are unknown."""
    device, content = link.device, entry.content
    assert isinstance(content, Item)
    rows = db.execute(
        "SELECT id FROM item WHERE workspace = ? AND sender = ? AND source_device IS NULL"
        " AND target = ? AND body = ? AND restored IS NOT NULL",
        *(device.workspace, row.origin, device.member, encode([replace(entry, sequence=0)])),
    )
    if rows:
        return int(rows[0][0])
    posting = Posting(
        device.workspace,
        row.origin,
        content,
        entry.time,
        SOS_PRIORITY if entry.sos else KINDS[get_kind(content)].priority,
        target=device.member,
        to=entry.to,
        asks=entry.wants_receipt,
        author=entry.author,
        unauthenticated=True,
    )
    return ledger.readd_item(db, posting, at=row.at, now=now)
