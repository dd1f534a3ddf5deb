"""Every item that came to the hub, and to whom it is delivered: entered once, in one transaction.

An item is addressed when it is entered: one delivery for each device that is to have it, one for
each webhook. From then on each way does its part on its own.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from fieldagent.hub import ring_alerts, sos
from fieldagent.hub.contract import Bearer, Estimate
from fieldagent.hub.store.contract import Db, insert
from fieldagent.package.package import Item, Message, Waypoint
from fieldagent.package.writing import kind_of
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
    """Store the item with its deliveries, by as many statements for one device as for 1 000.

    `grace` is how many seconds the IP link has before a satellite message is paid for.
    """
    if posting.collapse_key is not None:
        _collapse(db, posting, now)
    source = posting.source
    item, request_id = _store(db, posting, None if source is None else source.station, now)
    _deliver_to_devices(db, item, posting, now, grace)
    if source is not None:
        _deliver_to_webhooks(db, posting.workspace, item, now, urgent=posting.sos)
        if posting.sos:
            sos.raise_of(db, posting.workspace, source.station, item, now)
    return Entered(item, request_id)


def raise_overdue(db: Db, posting: Posting, device: int, now: float) -> int:
    """Nothing was heard of the device: the alarm, which goes to webhooks; its number."""
    item, _ = _store(db, posting, device, now)
    _deliver_to_webhooks(db, posting.workspace, item, now, urgent=True)
    return sos.raise_of(db, posting.workspace, device, item, now, kind="overdue")


def _store(db: Db, posting: Posting, device: int | None, now: float) -> Entered:
    """`device` is whose item it is, or without a `source`, of whom it tells."""
    source = posting.source
    request_id = str(uuid.uuid4())
    ((item,),) = db.execute(
        "INSERT INTO item (request_id, workspace, sender, target, body, sos, priority,"
        " collapse_key, accepted, expires, source_device, source_sequence, contact, estimate,"
        " unauthenticated, kind, words)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
        request_id,
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
        source.sequence if source else None,
        posting.contact,
        "" if posting.estimate is None else json.dumps(asdict(posting.estimate)),
        int(posting.unauthenticated),
        kind_of(posting.item),
        words_of(posting.item),
    )
    db.announce(sos.EVENTS)
    return Entered(item, request_id)


def satellite_from(
    posting: Posting, subscribed: bool | None, now: float, grace: float
) -> float | None:
    """When a delivery may be paid for; None is never. `subscribed`: whether its member asks for
    relays over satellite, None when the device has no satellite modem."""
    if subscribed is None:
        return None
    if posting.sos:
        return now
    relayed = posting.source is not None
    return now + grace if subscribed or not relayed else None


def _deliver_to_devices(db: Db, item: int, posting: Posting, now: float, grace: float) -> None:
    satellite = False
    rows = []
    for device, sequence, asks in _numbered_addressees(db, posting):
        subscribed = None if asks is None else bool(asks)
        due = satellite_from(posting, subscribed, now, grace)
        rows.append((item, device, sequence, "waiting", due))
        announce_mail(db, device)
        satellite |= due is not None
    insert(db, "delivery", ("item", "device", "sequence", "state", "satellite_from"), rows)
    if satellite:
        db.announce("satellite")


def _numbered_addressees(db: Db, posting: Posting) -> list[tuple[int, int, int | None]]:
    """Devices that are to have it; with each, the number that it has on air to that device, and
    whether its member asks for relays over satellite, None when it has no satellite modem.

    Locked in the order of their numbers: who locks several does so without a deadlock.
    """
    whom, number = (
        ("member <> ?", posting.sender)
        if posting.target is None
        else ("member = ?", posting.target)
    )
    return db.execute(
        "UPDATE device SET next_sequence = next_sequence + 1 WHERE id IN (SELECT id FROM device"
        f" WHERE workspace = ? AND disabled IS NULL AND {whom} AND EXISTS (SELECT 1 FROM membership"
        " WHERE membership.member = device.member AND membership.workspace = device.workspace)"
        f" ORDER BY id{db.for_update}) RETURNING id, next_sequence - 1,"
        " CASE WHEN imei IS NULL OR operator IS NULL THEN NULL ELSE (SELECT over_satellite FROM"
        " membership WHERE membership.member = device.member"
        " AND membership.workspace = device.workspace) END",
        posting.workspace,
        number,
    )


def _deliver_to_webhooks(db: Db, workspace: int, item: int, now: float, *, urgent: bool) -> None:
    """One with `after` is told of an SOS alone, so many minutes later, unless somebody answers."""
    rows = db.execute(
        "INSERT INTO webhook_delivery (webhook, item, state, not_before)"
        " SELECT id, ?, 'waiting', after * 60 + ? FROM webhook"
        " WHERE workspace = ? AND disabled IS NULL AND (after = 0 OR ? = 1) RETURNING webhook",
        item,
        now,
        workspace,
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


def _collapse(db: Db, posting: Posting, now: float) -> None:
    """A newer item takes the place of an older one that has not left yet."""
    db.execute(
        "UPDATE delivery SET state = 'collapsed', ended = ?, reason = 'replaced by a newer item'"
        " WHERE state = 'waiting' AND item IN (SELECT id FROM item WHERE workspace = ?"
        " AND sender = ? AND collapse_key = ?)",
        now,
        posting.workspace,
        posting.sender,
        posting.collapse_key,
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


def expire(db: Db, now: float) -> int:
    """End what outlived its time before it left; how many deliveries that were."""
    return len(
        db.execute(
            "UPDATE delivery SET state = 'expired', ended = ?, reason = 'expired'"
            " WHERE state IN ('waiting', 'packed') AND item IN"
            " (SELECT id FROM item WHERE expires <= ?)"
            " RETURNING item",
            now,
            now,
        )
    )


FORGOTTEN_AT_ONCE = 500
"""Items: nobody else writes meanwhile."""


def forget(db: Db, *, before: float) -> int:
    """Drop some items that came before then, are on their way to nobody, and are of no SOS that
    was closed since or is not; how many those were. More may be there while it is not 0."""
    ended: list[tuple[Any, ...]] = db.execute(
        "DELETE FROM item WHERE id IN (SELECT id FROM item WHERE accepted < ?"
        " AND NOT EXISTS (SELECT 1 FROM delivery WHERE"
        f" delivery.item = item.id AND delivery.state IN {WAITS}) AND NOT EXISTS (SELECT 1 FROM"
        " webhook_delivery WHERE webhook_delivery.item = item.id AND webhook_delivery.state"
        " = 'waiting') AND NOT EXISTS (SELECT 1 FROM sos WHERE sos.item = item.id"
        " AND coalesce(closed, ?) >= ?) ORDER BY accepted LIMIT ?) RETURNING id",
        before,
        before,
        before,
        FORGOTTEN_AT_ONCE,
    )
    if len(ended) == FORGOTTEN_AT_ONCE:
        return len(ended)
    for table in ("slice", "receipt", "idempotency"):
        db.execute(f"DELETE FROM {table} WHERE at < ?", before)
    # Who recorded an SOS may play it back after years.
    db.execute("DELETE FROM arrived WHERE at < ? AND sos = 0", before)
    return len(ended)


def announce_mail(db: Db, device: int) -> None:
    db.announce(mail_topic(device))


def mail_topic(device: int) -> str:
    """What is announced when something may wait for a device."""
    return f"device {device}"
