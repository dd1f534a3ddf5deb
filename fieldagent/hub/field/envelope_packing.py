"""What waits for one device, told as the entries of an envelope: items, receipts, introductions.

An envelope holds the items of one sender. Receipts and introductions ride in any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import field, replace

from fieldagent.hub.access.directory import proof_keys_of
from fieldagent.hub.contract import Device
from fieldagent.hub.records.ledger import WAITS
from fieldagent.hub.records.owed import THE_HUB
from fieldagent.hub.records.stored_entry import stored_beside, stored_entry
from fieldagent.hub.store.contract import ROWS, Db, one_of
from fieldagent.package.package import IncidentWord, Said
from fieldagent.package.payload import Identity
from fieldagent.package.reach import Rung
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.credit import paid_with
from fieldagent.wire.envelope import (
    Contact,
    Content,
    Entry,
    Introduction,
    Receipt,
    SeenAt,
    Source,
    Unproved,
    encode,
    fingerprint,
)
from fieldagent.wire.incident_proof import prove

LOOK_AT = 64
"""Items looked at to fill one envelope."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One item that waits for a device."""

    item: int
    sender: int
    entry: Entry
    """Under the number it has on air to this device."""
    source: Source | None = None
    """Which agent's item it is: a device may have heard it by radio."""
    unauthenticated: bool = False
    contact: Contact | None = None
    """Of a pushed message, where that tells it."""
    seen_at: SeenAt | None = None
    """Of an SOS that came over satellite and tells no position; anything else does without what
    that costs."""

    @property
    def entries(self) -> list[Entry]:
        """Return the entries: the item, and beside it what its receiver is to know of it."""
        facts: list[Content | None] = [self.source, self.contact, self.seen_at]
        beside = [each for each in facts if each is not None]
        if self.unauthenticated:
            beside.append(Unproved())
        return [self.entry, *(Entry(self.entry.sequence, each) for each in beside)]


@dataclass(slots=True)
class Load:
    """The entries of one envelope, with what they are in the store."""

    origin: int = 0
    packed: bool = False
    """Its texts take fewer bytes: its receiver reads those."""
    entries: list[Entry] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    receipts: list[int] = field(default_factory=list)
    commands: list[int] = field(default_factory=list)
    """Their numbers."""
    introduced: list[tuple[int, bytes]] = field(default_factory=list)
    parcels: list[tuple[int, int]] = field(default_factory=list)
    """Items for other devices, which it is to bring there."""
    carried: list[tuple[int, int]] = field(default_factory=list)
    """Commands for others, by device and number."""

    @property
    def urgent(self) -> bool:
        """Return whether an SOS is among its entries."""
        return any(entry.sos for entry in self.entries)

    def encode(self, key: bytes | None = None) -> bytes:
        """Return it as an envelope, tagged where a `key` is given."""
        return encode(self.entries, origin=self.origin, key=key, packed=self.packed)


@dataclass(frozen=True, slots=True)
class WaitingReceipt:
    id: int
    entry: Entry
    urgent: bool
    """Of an SOS."""
    member: int = THE_HUB
    """Who must be known by name for it."""


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes that an envelope may have, without those of its tag."""

    capacity: int
    ordinary: int | None = None
    """All that is no SOS stays within these, or in what the SOS's last credit leaves: the credits
    that are kept for an SOS pay for nothing else."""
    tag: int = 0

    def first(self, item: Waiting) -> int:
        """Return how many bytes there are for what goes first."""
        return self.capacity if item.entry.sos else self.beside(Load())

    def beside(self, load: Load) -> int:
        """Return how many bytes there are for what is no SOS."""
        if self.ordinary is None or self.ordinary >= self.capacity:
            return self.capacity
        paid = paid_with(len(load.encode()) + self.tag) - self.tag if load.entries else 0
        return min(self.capacity, max(self.ordinary, paid))


def waiting(
    db: Db, device: int, now: float, *, due: str, parameters: Sequence[object] = (), limit: int
) -> list[Waiting]:
    """Return what waits for `device` and has not expired, the most urgent first. `due` is a
    condition of deliveries."""
    # Of what waits, however much, only the items that are taken are looked up.
    rows = db.execute(
        "SELECT item.id, first.sequence, item.sender, item.body, item.source_device,"
        " item.source_sequence, item.unauthenticated, item.contact,"
        " CASE WHEN item.sos = 1 THEN item.estimate END FROM (SELECT item, sequence, rank"
        f" FROM delivery WHERE delivery.device = ? AND delivery.state IN {WAITS}"
        f" AND (delivery.expires IS NULL OR delivery.expires > ?) AND {due}"
        " ORDER BY rank, sequence LIMIT ?) AS first JOIN item ON item.id = first.item"
        " ORDER BY first.rank, first.sequence",
        device,
        now,
        *parameters,
        limit,
    )
    return [
        Waiting(
            item,
            sender,
            replace(stored_entry(body), sequence=sequence),
            None if station is None else Source(station, number),
            bool(unauthenticated),
            stored_beside(contact, Contact),
            stored_beside(seen, SeenAt),
        )
        for item, sequence, sender, body, station, number, unauthenticated, contact, seen in rows
    ]


def receipts_for(db: Db, device: int, *, limit: int) -> list[WaitingReceipt]:
    """Return the receipts owed to a device, the urgent ones first."""
    rows = db.execute(
        "SELECT id, sequence, member, at, digest, urgent, says, by_name, text, rung, about"
        " FROM receipt WHERE device = ? AND state = 'waiting'"
        " ORDER BY urgent DESC, id LIMIT ?",
        device,
        limit,
    )
    receipts = []
    for id_, sequence, member, at, digest, urgent, says, by, text, rung, about in rows:
        if says:
            said_of = IncidentWord(sequence, Said(says), about, by, text)
            word = _proved(db, about or device, said_of)
            receipts.append(WaitingReceipt(id_, Entry(0, word, int(at)), bool(urgent)))
        else:
            said = Receipt(member, bytes(digest or b""), Rung(rung), text)
            receipt = Entry(sequence, said, int(at))
            receipts.append(WaitingReceipt(id_, receipt, bool(urgent), member))
    return receipts


def _proved(db: Db, device: int, word: IncidentWord) -> IncidentWord:
    keys = proof_keys_of(db, device)
    return prove(word, keys[0]) if keys else word


def fill(
    db: Db,
    device: Device,
    items: Iterable[Waiting],
    receipts: Iterable[WaitingReceipt],
    space: Space,
    *,
    packed: bool = False,
    commands: Iterable[Entry] = (),
) -> Load:
    """Take as many of each as fit, in their order; only items of the first's sender. A receipt that
    does not fit keeps none back."""
    load = Load(packed=packed)
    for each in items:
        load.origin = load.origin or each.sender
        mine = each.sender == load.origin
        capacity = space.capacity if each.entry.sos else space.beside(load)
        if mine and not _add(db, device, load, each.sender, each.entries, capacity):
            break
        if mine:
            load.items.append(each.item)
    for receipt in receipts:
        capacity = space.capacity if receipt.urgent else space.beside(load)
        if _add(db, device, load, receipt.member, [receipt.entry], capacity):
            load.receipts.append(receipt.id)
    for command in commands:
        if not _add(db, device, load, THE_HUB, [command], space.beside(load)):
            break
        load.commands.append(command.sequence)
    if load.entries:
        for member in _unnamed(db, device):
            _add(db, device, load, member, [], space.beside(load))
    return load


UNNAMED = b""
"""Stands for what a device was told of somebody who was deleted, until it is told otherwise."""


def forget_name(db: Db, member: int) -> None:
    """Tell who knows them by name, with the next message, that there is none."""
    db.execute("UPDATE introduced SET digest = ? WHERE member = ?", UNNAMED, member)


def _unnamed(db: Db, device: Device) -> list[int]:
    rows = db.execute(
        "SELECT member FROM introduced WHERE device = ? AND digest = ? LIMIT 4", device.id, UNNAMED
    )
    return [member for (member,) in rows]


def _add(
    db: Db, device: Device, load: Load, member: int, added: list[Entry], capacity: int
) -> bool:
    """Add entries, and before them who `member` is unless the device knows; False: no fit."""
    new = introduction(db, device, member, {known for known, _ in load.introduced})
    entries = [*load.entries, *(e for _, e in new), *added]
    if len(encode(entries, origin=load.origin, packed=load.packed)) > capacity:
        return False
    load.entries = entries
    load.introduced += [mark for mark, _ in new]
    return True


def introduction(
    db: Db, device: Device, member: int, already: Collection[int] = ()
) -> list[tuple[tuple[int, bytes], Entry]]:
    """Return who `member` is, as a mark for `mark_introduced` and an entry; empty when that is
    known."""
    if member == THE_HUB or member in already:
        return []
    digest, entry = named(db, member, device.workspace)
    known = db.execute(
        "SELECT digest FROM introduced WHERE device = ? AND member = ?", device.id, member
    )
    return [] if known and bytes(known[0][0]) == digest else [((member, digest), entry)]


def named(db: Db, member: int, workspace: int) -> tuple[bytes, Entry]:
    """Return what names `member` to a device, and its digest, by which it is known who was told
    it."""
    entry = Entry(member, Introduction(identity_of(db, member, workspace)))
    return fingerprint(entry), entry


def identity_of(db: Db, member: int, workspace: int) -> Identity:
    """Return a member as payloads name them; `account` is the workspace."""
    rows = db.execute("SELECT type, name, email FROM member WHERE id = ?", member)
    type_, name, email = rows[0] if rows else ("User", "", "")
    return Identity(str(member), name, type_, email or "", str(workspace))


def journal_of(db: Db, device: int) -> int:
    """Return the number of the device's journal, 0 where it has not told it."""
    rows = db.execute("SELECT journal FROM device WHERE id = ?", device)
    return int(rows[0][0]) if rows else 0


def note_journal(db: Db, device: int, journal: int, *, anew: bool = False) -> None:
    """Note that the device has that journal: another was told nothing yet. `anew`: it lacks
    names."""
    changed = db.execute(
        "UPDATE device SET journal = ? WHERE id = ? AND journal <> ? RETURNING id",
        journal,
        device,
        journal,
    )
    if changed or anew:
        db.execute("DELETE FROM introduced WHERE device = ?", device)


def mark_introduced(db: Db, device: int, introduced: Iterable[tuple[int, bytes]]) -> None:
    """Note which members have been introduced to a device, each by the digest of what names
    them."""
    for member, digest in introduced:
        db.execute(
            "INSERT INTO introduced (device, member, digest) VALUES (?, ?, ?)"
            " ON CONFLICT (device, member) DO UPDATE SET digest = excluded.digest",
            device,
            member,
            digest,
        )


def mark_receipts_sent(db: Db, receipts: Sequence[int], now: float) -> None:
    """Note that these receipts, by their ids, have left for the kit."""
    for first in range(0, len(receipts), ROWS):
        among, some = one_of(db, receipts[first : first + ROWS])
        db.execute(f"UPDATE receipt SET state = 'sent', sent = ? WHERE id {among}", now, *some)
