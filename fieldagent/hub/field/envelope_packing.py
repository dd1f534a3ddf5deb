"""Packs everything that waits for one device into an envelope: items, receipts and introductions.

All items in an envelope have the same sender. The receipts and introductions in it may be about any
member.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from fieldagent.hub.access.device_keys import derive_proof_keys
from fieldagent.hub.contract import Device
from fieldagent.hub.records.due_receipts import THE_HUB
from fieldagent.hub.records.ledger import WAITING_STATES
from fieldagent.hub.records.stored_entry import decode_stored_entry, parse_stored_object
from fieldagent.hub.store.contract import ROWS_MAX, Db, insert, make_membership
from fieldagent.package.delivery import Stage
from fieldagent.package.package import IncidentState, IncidentUpdate
from fieldagent.package.payload import Identity
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.credit import compute_paid_size
from fieldagent.wire.envelope import (
    Contact,
    Content,
    Entry,
    EstimatedPosition,
    Introduction,
    Receipt,
    Source,
    UnauthenticatedMark,
    compute_fingerprint,
    encode,
)
from fieldagent.wire.proof import prove_update

LOOK_AT = 64
"""Largest number of items considered for one envelope."""


@dataclass(frozen=True, slots=True)
class WaitingItem:
    """An item that waits for a device."""

    item: int
    sender: int
    entry: Entry
    """Entry with the item's number on air for this device."""
    source: Source | None = None
    """Station of the agent that sent the item, and the station's number of the item. The device
    needs them because it may have heard the item by radio."""
    unauthenticated: bool = False
    contact: Contact | None = None
    """Contact data of the author of a pushed message."""
    seen_at: EstimatedPosition | None = None
    """Position of the sender according to the operator, for an SOS that arrived over satellite
    without a position. Other items do not contain this position, because it costs bytes."""

    @property
    def entries(self) -> list[Entry]:
        """Return the entry of the item, followed by entries with facts about the item for its
        receiver.
        """
        facts: list[Content | None] = [self.source, self.contact, self.seen_at]
        extra_contents = [each for each in facts if each is not None]
        if self.unauthenticated:
            extra_contents.append(UnauthenticatedMark())
        return [self.entry, *(Entry(self.entry.sequence, each) for each in extra_contents)]


@dataclass(slots=True)
class Load:
    """Content of one envelope: its entries, and the ids of their rows in the store."""

    origin: int = 0
    is_packed: bool = False
    """True if texts are compressed, which the receiver must support."""
    entries: list[Entry] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    receipts: list[int] = field(default_factory=list)
    commands: list[int] = field(default_factory=list)
    """Numbers of the commands that the envelope contains."""
    introduced: list[tuple[int, bytes]] = field(default_factory=list)
    parcels: list[tuple[int, int]] = field(default_factory=list)
    """Items that the receiver must relay to other devices, as pairs of item and device."""
    relayed_commands: list[tuple[int, int]] = field(default_factory=list)
    """Commands that the receiver must relay to other devices, as pairs of device and number."""

    @property
    def urgent(self) -> bool:
        """Return True if one of the entries is an SOS."""
        return any(entry.sos for entry in self.entries)

    def encode(self, key: bytes | None = None) -> bytes:
        """Return the envelope's bytes, with a tag if there is a `key`."""
        return encode(self.entries, origin=self.origin, key=key, is_packed=self.is_packed)


@dataclass(frozen=True, slots=True)
class WaitingReceipt:
    id: int
    entry: Entry
    urgent: bool
    """True if the receipt is about an SOS."""
    member: int = THE_HUB
    """Member whose name the receiver needs to show the receipt."""


@dataclass(frozen=True, slots=True)
class EnvelopeSpace:
    """Size limits of an envelope in bytes, without its tag."""

    capacity: int
    ordinary: int | None = None
    """Size up to which entries that are not SOS may fill the envelope; None for `capacity`. In an
    envelope with an SOS, such entries may also fill the last credit of the SOS. Credits reserved
    for SOS must not pay for other entries."""
    tag: int = 0

    def compute_first(self, item: WaitingItem) -> int:
        """Return the largest size of the envelope in bytes, if `item` is its first item."""
        return self.capacity if item.entry.sos else self.compute_beside(Load())

    def compute_beside(self, load: Load) -> int:
        """Return the largest size of the envelope in bytes, if entries that are not SOS are added
        to `load`.
        """
        if self.ordinary is None or self.ordinary >= self.capacity:
            return self.capacity
        paid_size = (
            compute_paid_size(len(load.encode()) + self.tag) - self.tag if load.entries else 0
        )
        return min(self.capacity, max(self.ordinary, paid_size))


def list_waiting(
    db: Db,
    device: int,
    now: float,
    *,
    due_condition: str,
    parameters: Sequence[object] = (),
    limit: int,
) -> list[WaitingItem]:
    """Return the unexpired waiting items of `device`, most urgent first. `due_condition` is an SQL
    condition on deliveries.
    """
    # Select the items first, so that the database reads only the bodies of at most `limit` items.
    rows = db.execute(
        f"SELECT {_ITEM} FROM (SELECT item, sequence, rank"
        f" FROM delivery WHERE delivery.device = ? AND delivery.state IN {WAITING_STATES}"
        f" AND (delivery.expires IS NULL OR delivery.expires > ?) AND {due_condition}"
        " ORDER BY rank, sequence LIMIT ?) AS first JOIN item ON item.id = first.item"
        " ORDER BY first.rank, first.sequence",
        device,
        now,
        *parameters,
        limit,
    )
    return [_make_waiting(row, decode_stored_entry(row[3])) for row in rows]


_ITEM = (
    "item.id, first.sequence, item.sender, item.body, item.source_device, item.source_sequence,"
    " item.unauthenticated, item.contact, CASE WHEN item.sos = 1 THEN item.estimate END"
)


def _make_waiting(row: Sequence[Any], entry: Entry) -> WaitingItem:
    item, sequence, sender, _, station, number, unauthenticated, contact, seen = row
    return WaitingItem(
        item,
        sender,
        replace(entry, sequence=sequence),
        None if station is None else Source(station, number),
        bool(unauthenticated),
        parse_stored_object(contact, Contact),
        parse_stored_object(seen, EstimatedPosition),
    )


def list_waiting_at_each(
    db: Db, devices: Sequence[int], now: float, *, limit: int
) -> dict[int, list[WaitingItem]]:
    """Return the unexpired waiting items of each device, in the same form as `list_waiting`."""
    if not db.takes_lists or len(devices) == 1:
        return {
            each: list_waiting(db, each, now, due_condition="1 = 1", limit=limit)
            for each in devices
        }
    rows = db.execute(
        f"SELECT first.device, {_ITEM} FROM (SELECT asked.device, own.* FROM"
        " unnest(?::bigint[]) AS asked (device) CROSS JOIN LATERAL (SELECT item, sequence, rank"
        f" FROM delivery WHERE delivery.device = asked.device AND delivery.state IN"
        f" {WAITING_STATES}"
        " AND (delivery.expires IS NULL OR delivery.expires > ?) ORDER BY rank, sequence LIMIT ?)"
        " AS own) AS first JOIN item ON item.id = first.item"
        " ORDER BY first.device, first.rank, first.sequence",
        *([*devices], now, limit),
    )
    entries: dict[int, Entry] = {}
    items: dict[int, list[WaitingItem]] = {device: [] for device in devices}
    for device, *row in rows:
        if row[0] not in entries:
            entries[row[0]] = decode_stored_entry(row[3])
        items[device].append(_make_waiting(row, entries[row[0]]))
    return items


_RECEIPT = "id, sequence, member, at, digest, urgent, says, by_name, text, rung, about"


def list_receipts(db: Db, device: int, *, limit: int) -> list[WaitingReceipt]:
    """Return the receipts that wait for a device, urgent receipts first."""
    rows = db.execute(
        f"SELECT {_RECEIPT} FROM receipt WHERE device = ? AND state = 'waiting'"
        " ORDER BY urgent DESC, id LIMIT ?",
        device,
        limit,
    )
    return [_make_waiting_receipt(db, device, row) for row in rows]


def list_receipts_for_each(
    db: Db, devices: Sequence[int], *, limit: int
) -> dict[int, list[WaitingReceipt]]:
    """Return the receipts that wait for each device, in the same form as `list_receipts`."""
    if not db.takes_lists or len(devices) == 1:
        return {each: list_receipts(db, each, limit=limit) for each in devices}
    rows = db.execute(
        "SELECT asked.device, own.* FROM unnest(?::bigint[]) AS asked (device)"
        f" CROSS JOIN LATERAL (SELECT {_RECEIPT} FROM receipt"
        " WHERE receipt.device = asked.device AND state = 'waiting'"
        " ORDER BY urgent DESC, id LIMIT ?) AS own ORDER BY asked.device, own.urgent DESC, own.id",
        *([*devices], limit),
    )
    receipts: dict[int, list[WaitingReceipt]] = {device: [] for device in devices}
    for device, *row in rows:
        receipts[device].append(_make_waiting_receipt(db, device, row))
    return receipts


def _make_waiting_receipt(db: Db, device: int, row: Sequence[Any]) -> WaitingReceipt:
    id_, sequence, member, at, digest, is_urgent, update_state, person, text, stage, station = row
    if update_state:
        proved_update = _add_proof(
            db,
            station or device,
            IncidentUpdate(sequence, IncidentState(update_state), station, person, text),
        )
        return WaitingReceipt(id_, Entry(0, proved_update, int(at)), bool(is_urgent))
    receipt = Receipt(member, bytes(digest or b""), Stage(stage), text)
    return WaitingReceipt(id_, Entry(sequence, receipt, int(at)), bool(is_urgent), member)


def _add_proof(db: Db, device: int, update: IncidentUpdate) -> IncidentUpdate:
    keys = derive_proof_keys(db, device)
    return prove_update(update, keys[0]) if keys else update


class DeviceNames(NamedTuple):
    """Introductions that one device may need."""

    unknown: Mapping[int, tuple[bytes, Entry]]
    """Introductions of members that the device does not know. Each has its digest."""
    deleted: Sequence[int]
    """Deleted members whose names the device still has. `unknown` contains these members with an
    introduction without a name."""


class NeededNames(NamedTuple):
    """Members whose names a device's next message needs."""

    device: int
    workspace: int
    members: Collection[int]


DELETED_AT_ONCE = 4
"""Largest number of names of deleted members that one message removes."""


def list_names(db: Db, needed: Sequence[NeededNames]) -> list[DeviceNames]:
    """Return, for each device, the introductions of the members whose names the device is
    missing.
    """
    membership, devices = make_membership(db, {each.device for each in needed})
    members = {member for each in needed for member in each.members}
    member_values, numbers = make_membership(db, members or {THE_HUB})
    rows = db.execute(
        "SELECT device, member, digest FROM introduced"
        f" WHERE device {membership} AND (member {member_values} OR digest = ?)",
        *(*devices, *numbers, DELETED_NAME_MARK),
    )
    known_digests: dict[int, dict[int, bytes]] = {each.device: {} for each in needed}
    for device, member, digest in rows:
        known_digests[device][member] = bytes(digest)
    people = _read_identities(db, members)
    return [_list_names(each, known_digests[each.device], people) for each in needed]


def _list_names(needed: NeededNames, digests: Mapping[int, bytes], people: _People) -> DeviceNames:
    deleted = [each for each, digest in digests.items() if digest == DELETED_NAME_MARK][
        :DELETED_AT_ONCE
    ]
    unknown = {}
    for member in {*needed.members, *deleted} - {THE_HUB}:
        digest, entry = _make_introduction(people.get(member), member, needed.workspace)
        if digests.get(member) != digest:
            unknown[member] = digest, entry
    return DeviceNames(unknown, deleted)


def fill_envelope_for(
    db: Db,
    device: Device,
    items: Iterable[WaitingItem],
    receipts: Iterable[WaitingReceipt],
    space: EnvelopeSpace,
    *,
    packed: bool = False,
) -> Load:
    """Look up the names that `items` and `receipts` need, and fill an envelope for one device with
    `fill_envelope`.
    """
    items, receipts = list(items), list(receipts)
    members = {each.sender for each in items} | {each.member for each in receipts}
    (names,) = list_names(db, [NeededNames(device.id, device.workspace, members)])
    return fill_envelope(names, items, receipts, space, packed=packed)


def fill_envelope(
    names: DeviceNames,
    items: Iterable[WaitingItem],
    receipts: Iterable[WaitingReceipt],
    space: EnvelopeSpace,
    *,
    packed: bool = False,
    commands: Iterable[Entry] = (),
) -> Load:
    """Fill an envelope with as many entries of each kind as fit, in order. Add only items of the
    first item's sender. If a receipt does not fit, continue with the next receipt.
    """
    load = Load(is_packed=packed)
    for each in items:
        load.origin = load.origin or each.sender
        is_own = each.sender == load.origin
        capacity = space.capacity if each.entry.sos else space.compute_beside(load)
        if is_own and not _add(names, load, each.sender, each.entries, capacity):
            break
        if is_own:
            load.items.append(each.item)
    for receipt in receipts:
        capacity = space.capacity if receipt.urgent else space.compute_beside(load)
        if _add(names, load, receipt.member, [receipt.entry], capacity):
            load.receipts.append(receipt.id)
    for command in commands:
        if not _add(names, load, THE_HUB, [command], space.compute_beside(load)):
            break
        load.commands.append(command.sequence)
    if load.entries:
        for member in names.deleted:
            _add(names, load, member, [], space.compute_beside(load))
    return load


DELETED_NAME_MARK = b""
"""Digest that marks a device that knows the name of a deleted member. After the device has got the
introduction without a name, the digest of that introduction replaces it."""


def forget_name(db: Db, member: int) -> None:
    """Mark a deleted member for all devices that know the member's name. The next message to each
    of these devices removes the name.
    """
    db.execute("UPDATE introduced SET digest = ? WHERE member = ?", DELETED_NAME_MARK, member)


def _add(names: DeviceNames, load: Load, member: int, added: list[Entry], capacity: int) -> bool:
    """Add entries to `load`, with the introduction of `member` if the device does not know the
    member. Return False if the entries do not fit.
    """
    new: list[tuple[tuple[int, bytes], Entry]] = []
    if member in names.unknown and all(
        known_member != member for known_member, _ in load.introduced
    ):
        digest, entry = names.unknown[member]
        new = [((member, digest), entry)]
    entries = [*load.entries, *(e for _, e in new), *added]
    if len(encode(entries, origin=load.origin, is_packed=load.is_packed)) > capacity:
        return False
    load.entries = entries
    load.introduced += [mark for mark, _ in new]
    return True


def make_introduction(db: Db, device: Device, member: int) -> list[tuple[tuple[int, bytes], Entry]]:
    """Return the introduction of a member as a mark for `mark_introduced` and an entry. The list is
    empty if the device knows the member.
    """
    (names,) = list_names(db, [NeededNames(device.id, device.workspace, [member])])
    new = names.unknown.get(member)
    return [] if new is None else [((member, new[0]), new[1])]


_People = Mapping[int, tuple[str, str, str]]
"""Type, name and email of members."""


def _read_identities(db: Db, members: Collection[int]) -> _People:
    if not members:
        return {}
    membership, numbers = make_membership(db, members)
    rows = db.execute(f"SELECT id, type, name, email FROM member WHERE id {membership}", *numbers)
    return {member: (type_, name, email or "") for member, type_, name, email in rows}


def _make_introduction(
    person: tuple[str, str, str] | None, member: int, workspace: int
) -> tuple[bytes, Entry]:
    """Return an introduction of a member, and its digest. The hub stores the digest when a device
    has the introduction. If the member was deleted, the introduction contains no name.
    """
    entry = Entry(member, Introduction(_make_identity(person, member, workspace)))
    return compute_fingerprint(entry), entry


def _make_identity(person: tuple[str, str, str] | None, member: int, workspace: int) -> Identity:
    type_, name, email = person or ("User", "", "")
    return Identity(str(member), name, type_, email, str(workspace))


def introduce_member(db: Db, member: int, workspace: int) -> tuple[bytes, Entry]:
    """Return the introduction of a member, with its digest."""
    return _make_introduction(_read_identities(db, [member]).get(member), member, workspace)


def read_identity(db: Db, member: int, workspace: int) -> Identity:
    """Return a member in the form that payloads use. The `account` of this form is the
    workspace.
    """
    return _make_identity(_read_identities(db, [member]).get(member), member, workspace)


def introduce_members(
    db: Db, members: Collection[int], workspace: int
) -> list[tuple[bytes, Entry]]:
    """Return the introductions of members, each with its digest."""
    people = _read_identities(db, members)
    return [_make_introduction(person, member, workspace) for member, person in people.items()]


def read_journal_number(db: Db, device: int) -> int:
    """Return the number of the device's journal, or 0 if it is unknown."""
    rows = db.execute("SELECT journal FROM device WHERE id = ?", device)
    return int(rows[0][0]) if rows else 0


def record_journal(
    db: Db, device: int, journal_number: int, *, asks_for_names: bool = False
) -> None:
    """Record the device's journal. A new journal knows no names. `asks_for_names` is True if the
    device asks for all names again.
    """
    changed_rows = db.execute(
        "UPDATE device SET journal = ? WHERE id = ? AND journal <> ? RETURNING id",
        journal_number,
        device,
        journal_number,
    )
    if changed_rows or asks_for_names:
        db.execute("DELETE FROM introduced WHERE device = ?", device)
        db.announce(get_names_topic(device))


def get_names_topic(device: int) -> str:
    """Return the store topic that the hub announces when a device has lost the names of members,
    for example with its disk.
    """
    return f"names of {device}"


def mark_introduced(db: Db, introduced: Iterable[tuple[int, int, bytes]]) -> None:
    """Record that members have been introduced to devices. `introduced` contains device, member,
    and the digest of the introduction.
    """
    rows = {(device, member): digest for device, member, digest in introduced}
    columns = ("device", "member", "digest")
    replaces = "(device, member) DO UPDATE SET digest = excluded.digest"
    insert(db, "introduced", columns, [(*k, v) for k, v in rows.items()], conflict=replaces)


def list_introduced(db: Db, device: int) -> list[tuple[int, bytes]]:
    """Return the members that a device knows. Each has the digest of its introduction."""
    rows = db.execute("SELECT member, digest FROM introduced WHERE device = ?", device)
    return [(member, bytes(digest)) for member, digest in rows]


def mark_receipts_sent(db: Db, receipts: Sequence[int], now: float) -> None:
    """Record that these receipts were sent to the kit."""
    for first in range(0, len(receipts), ROWS_MAX):
        membership, membership_values = make_membership(db, receipts[first : first + ROWS_MAX])
        db.execute(
            f"UPDATE receipt SET state = 'sent', sent = ? WHERE id {membership}",
            now,
            *membership_values,
        )
