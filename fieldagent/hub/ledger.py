"""Every item that came to the hub, and to whom it is delivered: entered once, in one transaction.

An item is addressed when it is entered: one delivery for each device that is to have it, one for
each webhook. From then on each way does its part on its own.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

from fieldagent.hub import ring_alerts, sos
from fieldagent.hub.contract import Bearer, Estimate
from fieldagent.hub.store.contract import Db, Overtaken, earliest, insert, marks, one_of
from fieldagent.package.package import CALLED_OFF, Item, Message, Waypoint
from fieldagent.package.writing import kind_of
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import Entry, Source, decode, digest_of, encode

THE_HUB = 0
"""Stands where a member does: the hub itself, and what is behind it."""

WAITS = "('waiting', 'packed', 'sent')"
"""States of a delivery that the device has not confirmed: `packed` is in a message to the satellite
operator, `sent` has been taken by them."""


@dataclass(frozen=True, slots=True)
class Posting:
    """An item to be entered."""

    workspace: int
    sender: int
    item: Item
    time: int
    """Unix seconds."""
    priority: int
    sos: bool = False
    unauthenticated: bool = False
    """An SOS of which nobody has proved that it is its sender's."""
    target: int | None = None
    """The member a message is for; None is everyone in the workspace but the sender."""
    collapse_key: int | None = None
    expires: float | None = None
    source: Source | None = None
    """Where it came from when an agent posted it."""
    contact: str = ""
    """JSON of how the writer of a pushed message is reached: `phone`, `email`, what there is."""
    estimate: Estimate | None = None
    """Where the satellite operator saw the sender, for an item that does not say so itself."""


WORDS_MAX = 1_000
"""Characters of an item that are searched."""


def words_of(item: Item) -> str:
    """What is searched in an item, whatever the case; as text that any database takes."""
    if isinstance(item, Message):
        text = item.content
    elif isinstance(item, Waypoint):
        text = f"{item.name}\n{item.notes or ''}"
    else:
        return ""
    words = text.casefold()[:WORDS_MAX].encode("utf-8", "replace").decode()
    return words.replace("\0", " ")


class Entered(NamedTuple):
    item: int
    request_id: str
    """What a caller asks for it by."""


def enter(db: Db, posting: Posting, *, now: float, grace: float) -> Entered:
    """One of an agent goes to webhooks too."""
    (entered,) = enter_all(db, [posting], now=now, grace=grace)
    source = posting.source
    if source is not None:
        _deliver_to_webhooks(db, posting, entered.item, now, urgent=posting.sos)
        if posting.sos:
            sos.raise_of(db, posting.workspace, source.station, entered.item, now)
        elif posting.item == Message(CALLED_OFF) and not posting.unauthenticated:
            sos.note_called_off(db, source.station, posting.sender, now)
    return entered


def enter_all(db: Db, postings: Sequence[Posting], *, now: float, grace: float) -> list[Entered]:
    """Store the items with their deliveries to devices, by as many statements for one item and one
    device as for 100 and 1 000.

    `grace` is how many seconds the IP link has before a satellite message is paid for.
    """
    if not postings:
        return []
    rows = [
        (posting, None if posting.source is None else posting.source.station)
        for posting in postings
    ]
    entered = _store(db, rows, now)
    _deliver_to_devices(db, postings, entered, now, grace)
    _collapse(db, postings, entered, now)
    return entered


def raise_overdue(db: Db, posting: Posting, device: int, now: float) -> int:
    """Nothing was heard of the device: the alarm, which goes to webhooks; its number."""
    ((item, _),) = _store(db, [(posting, device)], now)
    _deliver_to_webhooks(db, posting, item, now, urgent=True)
    return sos.raise_of(db, posting.workspace, device, item, now, kind="overdue")


_ITEM = (
    *("request_id", "workspace", "sender", "target", "body", "sos", "priority", "collapse_key"),
    *("accepted", "expires", "source_device", "source_sequence", "contact", "estimate"),
    *("unauthenticated", "kind", "words"),
)


def _store(db: Db, postings: Sequence[tuple[Posting, int | None]], now: float) -> list[Entered]:
    """With each the device whose item it is, or without a `source`, of which it tells."""
    rows = [
        (
            str(uuid.uuid4()),
            posting.workspace,
            posting.sender,
            posting.target,
            encode([Entry(0, posting.item, posting.time, posting.sos)]),
            int(posting.sos),
            posting.priority,
            posting.collapse_key,
            now,
            posting.expires,
            device,
            posting.source.sequence if posting.source else None,
            posting.contact,
            "" if posting.estimate is None else json.dumps(asdict(posting.estimate)),
            int(posting.unauthenticated),
            kind_of(posting.item),
            words_of(posting.item),
        )
        for posting, device in postings
    ]
    numbers = {request: item for item, request in insert(db, "item", _ITEM, rows, "id, request_id")}
    db.announce(sos.EVENTS)
    return [Entered(numbers[row[0]], row[0]) for row in rows]


_ADDRESSED = (
    "item.workspace = device.workspace"
    " AND (item.target = device.member OR (item.target IS NULL AND item.sender <> device.member))"
)
_MEMBER = "membership.member = device.member AND membership.workspace = device.workspace"


def _deliver_to_devices(
    db: Db, postings: Sequence[Posting], entered: Sequence[Entered], now: float, grace: float
) -> None:
    """Two steps: devices are locked as they count on the numbers that items have on air to them,
    and in the order of their own, so that who locks several does so without a deadlock."""
    items = [each.item for each in entered]
    among, numbers = one_of(db, items)
    these = f"item.id {among}"
    targets = {posting.target for posting in postings}
    column, whose = "member", targets
    if None in targets:
        column, whose = "workspace", {posting.workspace for posting in postings}
    numbered = db.execute(
        "UPDATE device SET next_sequence = next_sequence +"
        f" (SELECT count(*) FROM item WHERE {these} AND {_ADDRESSED}) WHERE id IN"
        f" (SELECT id FROM device WHERE {column} IN ({marks(whose)}) AND disabled IS NULL"
        f" AND EXISTS (SELECT 1 FROM membership WHERE {_MEMBER})"
        f" AND EXISTS (SELECT 1 FROM item WHERE {these} AND {_ADDRESSED})"
        f" ORDER BY id{db.for_update}) RETURNING id",
        *numbers,
        *whose,
        *numbers,
    )
    if not numbered:
        return
    # An SOS is paid for at once. What an agent sent is, if its addressee asks for that.
    delivered = db.execute(
        "INSERT INTO delivery (item, device, rank, expires, sequence, state, satellite_from)"
        " SELECT item.id, device.id, -priority, expires,"
        " next_sequence - 1 - count(*) OVER (PARTITION BY device.id)"
        " + row_number() OVER (PARTITION BY device.id ORDER BY item.id), 'waiting',"
        " CASE WHEN imei IS NULL OR operator IS NULL THEN NULL WHEN sos = 1 THEN ?"
        " WHEN over_satellite = 1 OR source_sequence IS NULL THEN ? END"
        f" FROM item JOIN device ON {_ADDRESSED} JOIN membership ON {_MEMBER}"
        f" WHERE {these} AND device.disabled IS NULL RETURNING device, satellite_from",
        now,
        now + grace,
        *numbers,
    )
    if {device for device, _ in delivered} != {device for (device,) in numbered}:
        raise Overtaken("who is in the workspace has changed meanwhile")
    for (device,) in numbered:
        announce_mail(db, device)
    if any(due is not None for _, due in delivered):
        db.announce("satellite")


def _deliver_to_webhooks(db: Db, posting: Posting, item: int, now: float, *, urgent: bool) -> None:
    """One with `after` is told of an SOS alone, so many minutes later, unless somebody answers.

    What has the same `sender` is posted in its order, so an SOS has its own: what a webhook did not
    take, and gets again in hours, must not hold one up.
    """
    rows = db.execute(
        "INSERT INTO webhook_delivery (webhook, item, sender, state, not_before)"
        " SELECT id, ?, ?, 'waiting', after * 60 + ? FROM webhook"
        " WHERE workspace = ? AND disabled IS NULL AND (after = 0 OR ? = 1) RETURNING webhook",
        item,
        -item if urgent else posting.sender,
        now,
        posting.workspace,
        int(urgent),
    )
    if rows:
        db.announce("webhooks")


def end_escalation(db: Db, item: int) -> None:
    """Somebody has answered: whom it would have been told next is told nothing."""
    db.execute(
        "DELETE FROM webhook_delivery WHERE item = ? AND state = 'waiting' AND webhook IN"
        " (SELECT id FROM webhook WHERE after > 0)",
        item,
    )


def _collapse(db: Db, postings: Sequence[Posting], entered: Sequence[Entered], now: float) -> None:
    """A newer item takes the place of older ones that have not left yet."""
    newest = {
        (posting.workspace, posting.sender, posting.collapse_key): each.item
        for posting, each in zip(postings, entered, strict=True)
        if posting.collapse_key is not None
    }
    if newest:
        among, items = one_of(db, newest.values())
        db.execute(
            "UPDATE delivery SET state = 'collapsed', ended = ?,"
            " reason = 'replaced by a newer item' WHERE state = 'waiting' AND item IN"
            " (SELECT older.id FROM item AS newest"
            " JOIN item AS older ON older.workspace = newest.workspace"
            " AND older.sender = newest.sender AND older.collapse_key = newest.collapse_key"
            f" AND older.id <> newest.id WHERE newest.id {among})",
            now,
            *items,
        )


def confirm(db: Db, item: int, device: int, way: Bearer, now: float) -> None:
    """The device has the item on disk: its delivery has ended, and a sending agent is told so."""
    confirmed = db.execute(
        "UPDATE delivery SET state = 'stored', way = ?, ended = ?, reason = ''"
        " WHERE item = ? AND device = ? AND state <> 'stored' RETURNING device",
        way.value,
        now,
        item,
        device,
    )
    if confirmed:
        ring_alerts.note_confirmed(db, device, now)
    for (by,) in confirmed:
        ((member,),) = db.execute("SELECT member FROM device WHERE id = ?", by)
        _owe_receipt(db, item, member, now)


def confirm_sos(db: Db, item: int, now: float) -> None:
    """Somebody's webhook has taken an SOS: its sender, who repeats it until then, is told once.

    Anything else is confirmed by the devices that store it.
    """
    if db.execute("SELECT 1 FROM item WHERE id = ? AND sos = 1", item):
        _owe_receipt(db, item, THE_HUB, now, once=True)


def acknowledge(db: Db, item: int, member: int, now: float) -> None:
    """A person has acknowledged an SOS: its sender is told so, by their name."""
    _owe_receipt(db, item, member, now, person=True)


def _owe_receipt(
    db: Db, item: int, member: int, now: float, *, once: bool = False, person: bool = False
) -> None:
    """The agent that sent it, if one did, is to be told that `member` has stored it."""
    rows = db.execute(
        "SELECT device.id, source_sequence, sos, body FROM item JOIN device"
        " ON device.id = item.source_device WHERE item.id = ? AND source_sequence IS NOT NULL",
        item,
    )
    for sender, sequence, urgent, body in rows:
        digest = digest_of(replace(stored_entry(body), sequence=sequence))
        if urgent and member != THE_HUB and not person:
            sos.note_stored(db, item, member, now)
        if once and db.execute(
            "SELECT 1 FROM receipt WHERE device = ? AND sequence = ? AND member = ? AND digest = ?",
            sender,
            sequence,
            member,
            digest,
        ):
            continue
        owe_receipt(db, sender, sequence, digest, member, now, urgent=urgent, person=person)


def owe_receipt(
    db: Db,
    device: int,
    sequence: int,
    digest: bytes,
    member: int,
    now: float,
    *,
    urgent: bool,
    person: bool = False,
) -> None:
    """An urgent one is worth a satellite message of its own."""
    db.execute(
        "INSERT INTO receipt (device, sequence, member, at, urgent, state, digest, person)"
        " VALUES (?, ?, ?, ?, ?, 'waiting', ?, ?)",
        device,
        sequence,
        member,
        now,
        int(urgent),
        digest,
        int(person),
    )
    announce_mail(db, device)
    db.announce("satellite")


ANSWERED_AGAIN = 120.0
"""Seconds: a repeat that left earlier has met the answer on its way."""


def answer_again(db: Db, device: int, sequence: int, digest: bytes, now: float) -> None:
    """An SOS comes once more that was answered: the answer was lost, and goes again. Ever more
    rarely: who plays back a recording must not run up costs."""
    again = db.execute(
        "UPDATE receipt SET state = 'waiting' WHERE device = ? AND sequence = ? AND digest = ?"
        " AND urgent = 1 AND state = 'sent' AND sent <= ? AND ? - sent >= sent - at RETURNING id",
        device,
        sequence,
        digest,
        now - ANSWERED_AGAIN,
        now,
    )
    if again:
        announce_mail(db, device)
        db.announce("satellite")


def stored_entry(body: bytes) -> Entry:
    """The one entry of an item's envelope, under no number yet."""
    (stored,) = decode(bytes(body)).entries
    return stored


AT_ONCE = 100
"""Rows that end or go in one transaction: nobody else writes meanwhile."""


def expire(db: Db, now: float) -> int:
    """End some of what outlived its time before it left; how many deliveries that were. More may
    be there while it is not 0."""
    return len(
        db.execute(
            "UPDATE delivery SET state = 'expired', ended = ?, reason = 'expired'"
            " WHERE (item, device) IN (SELECT item, device FROM delivery"
            " WHERE state IN ('waiting', 'packed') AND expires <= ? ORDER BY expires LIMIT ?)"
            " RETURNING item",
            now,
            now,
            AT_ONCE,
        )
    )


def next_expiry(db: Db) -> float:
    """When `expire` finds something."""
    sql = "SELECT min(expires) FROM delivery WHERE state IN ('waiting', 'packed')"
    return earliest(db, sql)


def forget(db: Db, *, before: float) -> int:
    """Drop some items that came before then, are on their way to nobody, and are of no SOS that
    was closed since or is not; how many those were. More may be there while it is not 0."""
    return len(
        db.execute(
            "DELETE FROM item WHERE id IN (SELECT id FROM item WHERE accepted < ?"
            " AND NOT EXISTS (SELECT 1 FROM delivery WHERE"
            f" delivery.item = item.id AND delivery.state IN {WAITS}) AND NOT EXISTS (SELECT 1 FROM"
            " webhook_delivery WHERE webhook_delivery.item = item.id AND webhook_delivery.state"
            " = 'waiting') AND NOT EXISTS (SELECT 1 FROM sos WHERE sos.item = item.id"
            " AND coalesce(closed, ?) >= ?) ORDER BY accepted LIMIT ?) RETURNING id",
            before,
            before,
            before,
            AT_ONCE,
        )
    )


_REMEMBERED = {
    "receipt": "id",
    "idempotency": "credential, member, key",
    "slice": "device, origin, sequence, count, position",
    "arrived": "device, origin, sequence, digest",
}
"""Tables with what items are recognised and answered by, and the columns of their keys."""


def forget_remembered(db: Db, *, before: float) -> int:
    """Drop some of that; how much. More may be there while it is not 0."""
    dropped = 0
    for table, key in _REMEMBERED.items():
        # Who recorded an SOS may play it back after years.
        which = " AND sos = 0" if table == "arrived" else ""
        dropped += len(
            db.execute(
                f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table}"
                f" WHERE at < ?{which} ORDER BY at LIMIT ?) RETURNING at",
                before,
                AT_ONCE,
            )
        )
    return dropped


def announce_mail(db: Db, device: int) -> None:
    db.announce(mail_topic(device))


def mail_topic(device: int) -> str:
    """What is announced when something may wait for a device."""
    return f"device {device}"
