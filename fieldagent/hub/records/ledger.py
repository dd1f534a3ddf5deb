"""Items of the hub and their deliveries. Each item is added once, in one transaction.

An item gets one delivery for each addressed device and webhook. A kit's item to everyone is in the
log of its workspace, and gets deliveries when devices fetch it (`workspace_log`). A kit's position
to everyone has no deliveries (`newest`).
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from enum import Enum, auto

from fieldagent.hub.contract import Bearer, Estimate
from fieldagent.hub.records import alarm, newest, ring_alerts, sos, workspace_log
from fieldagent.hub.records.due_receipts import RECEIPT, announce_answer, announce_mail, owe_receipt
from fieldagent.hub.records.newest import NewPosition, PositionSender
from fieldagent.hub.records.stored_entry import decode_stored_entry
from fieldagent.hub.store.contract import ROWS_MAX, Db, insert, make_membership, make_small_table
from fieldagent.package.delivery import Stage
from fieldagent.package.package import (
    IncidentState,
    IncidentUpdate,
    Item,
    Location,
    Message,
    Person,
    Waypoint,
)
from fieldagent.package.writing import get_kind
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.envelope import Entry, Source, compute_item_digest, encode

WAITING_STATES = "('waiting', 'packed', 'sent')"
"""States of a delivery that the device has not confirmed. `packed`: the item is in a message to the
satellite operator. `sent`: the operator has accepted this message."""


@dataclass(frozen=True, slots=True)
class Posting:
    """An item for the ledger that is not stored yet, with its sender, addressee and options."""

    workspace: int
    sender: int
    item: Item
    time: int
    """Unix time of the item in seconds."""
    priority: int
    sos: bool = False
    alarm: bool = False
    """True for an alarm of the hub (fence, check-in, watch), which is as urgent as an SOS."""
    unauthenticated: bool = False
    """True for an SOS whose sender is not authenticated."""
    back: int = 0
    """For an SOS: number of items back to the incident's first item (`Entry.items_back`)."""
    target: int | None = None
    """Member to whom the item is addressed. None: everyone in the workspace except the sender."""
    team: int | None = None
    """Group to which the item is addressed, instead of a member. `audience` contains the members of
    the group except the sender. 0: a group without a member in the workspace."""
    audience: frozenset[int] = frozenset()
    device: int | None = None
    """Device that gets the item. None: all devices of `target`."""
    over_satellite: bool | None = None
    """True if the hub may pay for a satellite message even if the addressee has not asked for that.
    None: True for an item that was pushed at the hub, False for an item from an agent."""
    to: Person | None = None
    """The addressee in the words of the sender."""
    addressee: str = ""
    """JSON that describes the addressee to people."""
    asks: bool = False
    """True if the sender wants a read receipt."""
    author: Person | None = None
    """The author, as named by the kit."""
    carried: bool = False
    """True if another kit than the sender's delivered the item. That kit needs no delivery."""
    collapse_key: int | None = None
    expires: float | None = None
    source: Source | None = None
    """Station and number of the item, if an agent sent the item."""
    contact: str = ""
    """JSON with the contact data of the author of a pushed message: `phone`, `email`, or both."""
    estimate: Estimate | None = None
    """Position of the sender according to the operator, for an item without a position."""
    revoked: float | None = None
    """For an SOS: Unix time when the kit that sent or relayed it was revoked."""


SEARCH_TEXT_MAX = 1_000
"""Largest number of an item's characters that can be searched."""


def make_search_text(item: Item) -> str:
    """Return the searchable text of an item, case-folded and valid in any database."""
    if isinstance(item, Message):
        text = item.content
    elif isinstance(item, Waypoint):
        text = f"{item.name}\n{item.notes or ''}"
    else:
        return ""
    search_text = text.casefold()[:SEARCH_TEXT_MAX].encode("utf-8", "replace").decode()
    return search_text.replace("\0", " ")


class ItemIds(NamedTuple):
    item: int
    request_id: str
    """Id with which the caller can query the item."""


def add_item(db: Db, posting: Posting, *, now: float, grace: float) -> ItemIds:
    """Add one item. An item from an agent also goes to webhooks, and may change an incident."""
    (added,) = add_items(db, [posting], now=now, grace=grace)
    source = posting.source
    if source is None:
        return added
    raised_incident, escalates = None, False
    if posting.sos:
        number = source.sequence - posting.back
        joined = sos.join_incident(
            db, posting.workspace, source.station, number, added.item, posting.time, now
        )
        raised_incident, escalates = joined.id if joined.rings else None, joined.escalates
    elif isinstance(posting.item, IncidentUpdate):
        _record_incident_update(db, posting.item, posting, now)
    _deliver_to_webhooks(db, [posting], [added.item], now, escalates=escalates)
    if raised_incident is not None:
        alarm.queue_first_messages(db, raised_incident, now)
    return added


def _record_incident_update(db: Db, update: IncidentUpdate, posting: Posting, now: float) -> None:
    """Record that a kit calls off its own incident, or that a person has seen an incident."""
    assert posting.source is not None
    incident = sos.find_by_kit(db, update.station or posting.source.station, update.incident)
    if incident is None or incident.workspace != posting.workspace:
        return
    is_proved = not posting.unauthenticated
    if update.state is IncidentState.CALLED_OFF and incident.device == posting.source.station:
        sos.record_call_off(db, incident, posting.sender, now, is_proved=is_proved)
    elif update.state is IncidentState.SEEN:
        mark = "" if is_proved else "(unauthenticated)"
        text = " ".join(filter(None, [update.by, update.text, mark]))
        sos.record_event(db, incident.id, "seen at a kit", now, member=posting.sender, detail=text)


def add_items_from_kits(
    db: Db, postings: Sequence[Posting], *, now: float, grace: float
) -> list[ItemIds]:
    """Add items from agents, none of them an SOS, with deliveries to devices and webhooks."""
    added = add_items(db, postings, now=now, grace=grace)
    _deliver_to_webhooks(db, postings, [each.item for each in added], now, escalates=False)
    return added


def add_items(db: Db, postings: Sequence[Posting], *, now: float, grace: float) -> list[ItemIds]:
    """Store items with their deliveries to devices. The number of statements does not depend on the
    number of items and devices.

    The hub pays for a satellite message if the IP link is slower than `grace` seconds.
    """
    if not postings:
        return []
    rows = [
        (posting, None if posting.source is None else posting.source.station)
        for posting in postings
    ]
    added, with_exceptions = _store_all(db, rows, now)
    pairs = list(zip(postings, added, strict=True))
    for spread in DeliverySpread:
        pairs_of_spread = [pair for pair in pairs if _spread_of(pair[0]) is spread]
        _deliver_to_devices(db, pairs_of_spread, now, grace, spread, with_exceptions)
    _collapse(db, postings, added, now)
    return added


def add_unnumbered_item(db: Db, posting: Posting, device: int, now: float, *, free: str) -> int:
    """Add an item from a device that does not number its items, and return the item's id. The
    item goes to webhooks and, over free bearers only, to kits. People see the reason `free`.
    """
    added = _store(db, [(posting, device)], now)
    item = added[0].item
    _deliver_to_devices(db, [(posting, added[0])], now, 0.0)
    restrict_to_free(db, item, free)
    _collapse(db, [posting], added, now)
    _deliver_to_webhooks(db, [posting], [item], now, escalates=False)
    return item


def raise_alarm(
    db: Db, posting: Posting, device: int, now: float, kind: str, *, free: str = ""
) -> int:
    """Raise an incident about a device, send it to webhooks, and return its number. If `free` is
    not empty, kits also get the item, over free bearers only. People see the reason `free`.
    """
    added = _store(db, [(posting, device)], now)
    item = added[0].item
    if free:
        _deliver_to_devices(db, [(posting, added[0])], now, 0.0)
        restrict_to_free(db, item, free)
    _deliver_to_webhooks(db, [posting], [item], now, escalates=True)
    raised_incident = sos.raise_incident(db, posting.workspace, device, item, now, kind=kind)
    alarm.queue_first_messages(db, raised_incident, now)
    return raised_incident


def post_text(db: Db, posting: Posting, device: int, incident: int, now: float) -> None:
    """Store a text of the hub as the first item of an incident, and send it to webhooks."""
    ((item, _),) = _store(db, [(posting, device)], now)
    sos.add_item(db, item, incident)
    sos.set_first_item(db, item, incident)
    _deliver_to_webhooks(db, [posting], [item], now, escalates=True)


def announce_addition(db: Db, posting: Posting, device: int, incident: int, now: float) -> None:
    """Add a text of the hub to an alarm and send it to webhooks. Contacts are not notified."""
    ((item, _),) = _store(db, [(posting, device)], now)
    sos.add_item(db, item, incident)
    sos.record_event(db, incident, "item", now)
    _deliver_to_webhooks(db, [posting], [item], now, escalates=False)


REPLACED_REASON = "replaced by a newer item"
CAME_BACK = "a kit returned it after the database was restored"


def readd_item(db: Db, posting: Posting, *, at: float, now: float, is_closed: bool = False) -> int:
    """Add an item that a kit sent back after the database had lost it, with its original time
    `at`. Return the item's id. Webhooks do not get it, and kits get it over free bearers only. If
    it raises an incident, contacts are notified, unless the incident is over (`is_closed`).
    """
    source = posting.source
    rows = [(posting, source.station if source else None)]
    ((item, request_id),), with_exceptions = _store_all(db, rows, at)
    db.execute("UPDATE item SET restored = ? WHERE id = ?", now, item)
    if source is None:
        return item
    added = [(posting, ItemIds(item, request_id))]
    _deliver_to_devices(db, added, now, 0.0, _spread_of(posting), with_exceptions)
    restrict_to_free(db, item, CAME_BACK)
    if posting.sos:
        kit, number = source.station, source.sequence - posting.back
        joined = sos.join_incident(db, posting.workspace, kit, number, item, posting.time, at)
        if is_closed:
            sos.record_closure(db, joined.id, now)
            alarm.cancel_messages(db, joined.id)
        elif joined.rings:
            alarm.queue_first_messages(db, joined.id, now)
    elif isinstance(posting.item, IncidentUpdate):
        _record_incident_update(db, posting.item, posting, at)
    return item


def record_earlier_delivery(db: Db, item: int, device: int, sequence: int, at: float) -> None:
    """Record that a device had an item under that number before the database was restored."""
    if db.execute("SELECT 1 FROM delivery WHERE device = ? AND sequence = ?", device, sequence):
        # The number has been used for another item since the restore: take the next free number.
        sql = "UPDATE device SET next_sequence = next_sequence + 1 WHERE id = ?"
        ((next_number,),) = db.execute(f"{sql} RETURNING next_sequence", device)
        sequence = next_number - 1
    db.execute(
        "INSERT INTO delivery (item, device, sequence, state, way, ended)"
        " VALUES (?, ?, ?, 'stored', ?, ?) ON CONFLICT (item, device) DO UPDATE"
        " SET state = 'stored', way = excluded.way, ended = excluded.ended, reason = ''",
        *(item, device, sequence, Bearer.IP.value, at),
    )


_LANE = "CASE WHEN item.sos > 0 THEN -item.id ELSE coalesce(item.source_device, item.sender) END"


def post_again(db: Db, now: float) -> int:
    """Send restored items to webhooks. Return the number of queued webhook requests."""
    posts = db.execute(
        "INSERT INTO webhook_delivery (webhook, item, sender, state, not_before)"
        f" SELECT webhook.id, item.id, {_LANE},"
        " 'waiting', ? FROM item JOIN webhook ON webhook.workspace = item.workspace"
        " WHERE item.restored IS NOT NULL AND item.source_device IS NOT NULL"
        " AND webhook.disabled IS NULL AND webhook.after = 0"
        " ON CONFLICT (webhook, item) DO NOTHING RETURNING item",
        now,
    )
    if posts:
        db.announce("webhooks")
    return len(posts)


_ITEM = (
    *("request_id", "workspace", "sender", "target", "body", "sos", "priority", "collapse_key"),
    *("accepted", "expires", "source_device", "source_sequence", "contact", "estimate"),
    *("unauthenticated", "kind", "words", "addressee", "team", "asks", "place", "revoked"),
)


class DeliverySpread(Enum):
    """Moment at which the deliveries of an item are created."""

    FETCHED = auto()
    """When a device fetches the item from its workspace's log (`workspace_log`)."""
    NEWEST = auto()
    """Never, because the item is a position that only the newest positions contain (`newest`)."""
    NOW = auto()


def _spread_of(posting: Posting) -> DeliverySpread:
    to_everybody = posting.target is None and posting.team is None and posting.device is None
    plain = not posting.sos and not isinstance(posting.item, IncidentUpdate)
    has_end = posting.expires is not None and posting.collapse_key is None
    is_free = posting.source is not None and not posting.over_satellite
    if not (to_everybody and plain and has_end and is_free):
        return DeliverySpread.NOW
    is_position = isinstance(posting.item, Location) and not posting.asks
    return DeliverySpread.NEWEST if is_position else DeliverySpread.FETCHED


def _make_entry(posting: Posting) -> Entry:
    """Return the item as an envelope entry without a number."""
    addressing = posting.to, posting.asks, posting.author
    return Entry(0, posting.item, posting.time, posting.sos, posting.back, *addressing)


def _store(db: Db, postings: Sequence[tuple[Posting, int | None]], now: float) -> list[ItemIds]:
    """Store items, each paired with the device that sent it or that it is about, or with None."""
    return _store_all(db, postings, now)[0]


def _store_all(
    db: Db, postings: Sequence[tuple[Posting, int | None]], now: float
) -> tuple[list[ItemIds], set[int]]:
    """Store items. Return their ids, and the workspaces where devices get rows at once."""
    fetched = [each.workspace for each, _ in postings if _spread_of(each) is DeliverySpread.FETCHED]
    tracks = _get_newest(postings, now)
    positions = [posting.workspace for posting in tracks.values()]
    places, places_in_track, with_exceptions = workspace_log.reserve_places(db, fetched, positions)
    rows = [
        (
            str(uuid.uuid4()),
            posting.workspace,
            posting.sender,
            posting.target,
            encode([_make_entry(posting)]),
            alarm.ITEM if posting.alarm else int(posting.sos),
            posting.priority,
            posting.collapse_key,
            now,
            posting.expires,
            device,
            posting.source.sequence if posting.source else None,
            posting.contact,
            "" if posting.estimate is None else json.dumps(asdict(posting.estimate)),
            int(posting.unauthenticated),
            get_kind(posting.item),
            make_search_text(posting.item),
            posting.addressee,
            posting.team,
            int(posting.asks),
            next(places) if _spread_of(posting) is DeliverySpread.FETCHED else None,
            posting.revoked,
        )
        for posting, device in postings
    ]
    ids = {request: item for item, request in insert(db, "item", _ITEM, rows, "id, request_id")}
    db.announce(sos.EVENTS)
    added = [ItemIds(ids[row[0]], row[0]) for row in rows]
    items = {id(posting): each.item for (posting, _), each in zip(postings, added, strict=True)}
    newest.store_positions(
        db,
        {
            track: NewPosition(own.workspace, track_place, items[id(own)], min(own.time, now))
            for (track, own), track_place in zip(tracks.items(), places_in_track, strict=True)
        },
    )
    return added, with_exceptions


def _get_newest(
    postings: Sequence[tuple[Posting, int | None]], now: float
) -> dict[PositionSender, Posting]:
    """Return the newest position of each sender, of the postings that kits get only as newest."""
    tracks: dict[PositionSender, Posting] = {}
    for posting, device in postings:
        if device is not None and _spread_of(posting) is DeliverySpread.NEWEST:
            track = PositionSender(device, posting.sender)
            before = tracks.get(track)
            if before is None or min(before.time, now) <= min(posting.time, now):
                tracks[track] = posting
    return tracks


_EVERYBODY, _NOBODY = 0, -1
"""Placeholders for a member id."""
_MEMBER = "membership.member = device.member AND membership.workspace = device.workspace"
_COUNT = (
    "(SELECT sum(items) FROM counted WHERE counted.workspace = device.workspace"
    f" AND (counted.member IN ({_EVERYBODY}, device.member) OR counted.device = device.id))"
)
"""SQL: number of the new items that a `device` gets."""
_DELIVERY = ("item", "device", "rank", "expires", "sequence", "state", "satellite_from")


def _deliver_to_devices(
    db: Db,
    entries: Sequence[tuple[Posting, ItemIds]],
    now: float,
    grace: float,
    spread: DeliverySpread = DeliverySpread.NOW,
    with_exceptions: Collection[int] = (),
) -> None:
    """Create the deliveries of items to devices. If `spread` is not NOW, use only the devices in
    the workspaces `with_exceptions` that get each item or position at once (`list_direct`).

    The UPDATE locks the devices in the order of their ids, so that transactions cannot deadlock. It
    reads no growing table, because PostgreSQL scans a new table completely until it has statistics.
    """
    counted, column, addressees = _find_addressees([posting for posting, _ in entries])
    if not counted:
        return
    if spread is not DeliverySpread.NOW:
        of_positions = spread is DeliverySpread.NEWEST
        exceptions = set(addressees) & set(with_exceptions)
        column, addressees = "id", workspace_log.list_direct(db, exceptions, positions=of_positions)
        if not addressees:
            return
    table, counts = make_small_table(
        db, "counted", ("workspace", "member", "device", "items"), counted
    )
    membership, these = make_membership(db, addressees)
    numbered = db.execute(
        f"{table} UPDATE device SET next_sequence = next_sequence + {_COUNT} WHERE id IN"
        f" (SELECT id FROM device WHERE {column} {membership} AND disabled IS NULL"
        " AND link_token IS NOT NULL"  # A tracker has no link token and cannot be reached.
        f" AND EXISTS (SELECT 1 FROM membership WHERE {_MEMBER}) AND {_COUNT} > 0"
        f" ORDER BY id{db.for_update()}) RETURNING id, workspace, member, next_sequence,"
        " CASE WHEN imei IS NULL OR operator IS NULL THEN 0 ELSE 1 END,"
        f" (SELECT over_satellite FROM membership WHERE {_MEMBER})",
        *counts,
        *these,
    )
    items: dict[int, list[tuple[Posting, int]]] = {}
    for posting, (item, _) in entries:
        items.setdefault(posting.workspace, []).append((posting, item))
    rows = []
    is_due = False
    for device, workspace, member, end, reached, wants_receipt in sorted(numbered):
        own = [each for each in items[workspace] if _is_for(each[0], member, device)]
        for sequence, (posting, item) in enumerate(own, end - len(own)):
            due = _compute_satellite_start(posting, wants_receipt, now, grace) if reached else None
            is_due = is_due or due is not None
            row = (item, device, -posting.priority, posting.expires, sequence, "waiting", due)
            rows.append(row)
        announce_mail(db, device)
    insert(db, "delivery", _DELIVERY, rows)
    if is_due:
        db.announce("satellite")


def _find_addressees(
    postings: Sequence[Posting],
) -> tuple[list[tuple[int, int, int, int]], str, Collection[int]]:
    """Return the item counts, and the column of `device` with the values that select the devices.

    Each count is for a member, for everyone except the sender, or for a single device.
    """
    counts: Counter[tuple[int, int, int]] = Counter()
    for posting in postings:
        workspace = posting.workspace
        if posting.device is not None:
            counts[workspace, _NOBODY, posting.device] += 1
        elif posting.team is not None:
            counts.update((workspace, each, 0) for each in posting.audience - {posting.sender})
        elif posting.target is None:
            counts[workspace, _EVERYBODY, 0] += 1
            counts[workspace, posting.sender, 0] -= 1
            if posting.carried and posting.source is not None:
                counts[workspace, _NOBODY, posting.source.station] -= 1
        else:
            counts[workspace, posting.target, 0] += 1
    counted = [(*addressees, items) for addressees, items in counts.items()]
    if any(member in (_EVERYBODY, _NOBODY) for _, member, _ in counts):
        return counted, "workspace", {posting.workspace for posting in postings}
    return counted, "member", {member for _, member, _ in counts}


def _is_for(posting: Posting, member: int, device: int) -> bool:
    if posting.device is not None:
        return posting.device == device
    if posting.team is not None:
        return member in posting.audience and member != posting.sender
    if posting.target is not None:
        return posting.target == member
    is_here = posting.carried and posting.source is not None and posting.source.station == device
    return posting.sender != member and not is_here


def _compute_satellite_start(posting: Posting, asks: int, now: float, grace: float) -> float | None:
    """Return the Unix time from which the hub may pay for a satellite message, or None for never.
    It pays for an SOS at once, and for an agent's item to everyone if the addressee asks for it.
    """
    if posting.sos:
        return now
    pays = posting.source is None if posting.over_satellite is None else posting.over_satellite
    return now + grace if asks or pays else None


_WEBHOOK_DELIVERY = ("webhook", "item", "sender", "state", "not_before")


def _deliver_to_webhooks(
    db: Db, postings: Sequence[Posting], items: Sequence[int], now: float, *, escalates: bool
) -> None:
    """Create deliveries to webhooks. A webhook with a delay (`after`, in minutes) gets only items
    that raise an incident (`escalates`). It gets them after the delay, unless someone answers.

    Deliveries with the same `sender` number are posted in order. Each SOS has its own `sender`
    number, so that failed requests of other items cannot delay it.
    """
    membership, workspaces = make_membership(db, {posting.workspace for posting in postings})
    webhooks: dict[int, list[tuple[int, int]]] = {}
    for id_, workspace, after in db.execute(
        f"SELECT id, workspace, after FROM webhook WHERE workspace {membership}"
        " AND disabled IS NULL AND (after = 0 OR ? = 1) ORDER BY id",
        *workspaces,
        int(escalates),
    ):
        webhooks.setdefault(workspace, []).append((id_, after))
    rows = [
        (id_, item, _choose_lane(posting, item), "waiting", after * 60 + now)
        for posting, item in zip(postings, items, strict=True)
        for id_, after in webhooks.get(posting.workspace, ())
    ]
    if rows:
        insert(db, "webhook_delivery", _WEBHOOK_DELIVERY, rows)
        db.announce("webhooks")


def _choose_lane(posting: Posting, item: int) -> int:
    """Return the `sender` number of a webhook delivery. An SOS or an alarm waits for no other
    delivery. Deliveries of one kit do not wait for those of another kit of the same user.
    """
    if posting.sos or posting.alarm:
        return -item
    return posting.sender if posting.source is None else posting.source.station


_IS_WANTED = (
    "(item.restored IS NULL AND EXISTS (SELECT 1 FROM webhook"
    " WHERE webhook.workspace = item.workspace AND steps = 1))"
)
"""SQL condition on an `item`: a webhook gets the steps of its delivery. Most hubs have no such
webhook. Restored items are excluded, because a webhook may already have got their steps."""


def _queue_step_posts(db: Db, items: Collection[int]) -> None:
    """Queue webhook requests with an item's delivery steps, after the item itself. One request
    contains all waiting steps. For an item pushed at the hub, webhooks get only its steps.
    """
    membership, numbers = make_membership(db, items)
    state_condition = "webhook_delivery.state = 'handed'"
    rows = db.execute(
        "INSERT INTO webhook_delivery (webhook, item, sender, state, steps, told)"
        f" SELECT webhook.id, item.id, {_LANE},"
        " 'waiting', 1, 0 FROM item JOIN webhook ON webhook.workspace = item.workspace"
        f" WHERE item.id {membership} AND webhook.steps = 1 AND webhook.disabled IS NULL"
        " ON CONFLICT (webhook, item) DO UPDATE SET steps = webhook_delivery.steps + 1,"
        f" state = CASE WHEN {state_condition} THEN 'waiting' ELSE webhook_delivery.state END,"
        f" attempts = CASE WHEN {state_condition} THEN 0 ELSE webhook_delivery.attempts END,"
        f" batch = CASE WHEN {state_condition} THEN 0 ELSE webhook_delivery.batch END,"
        f" not_before = CASE WHEN {state_condition} THEN 0 ELSE webhook_delivery.not_before END"
        " RETURNING item",
        *numbers,
    )
    if rows:
        db.announce("webhooks")


def restrict_to_free(db: Db, item: int, reason: str) -> None:
    """Restrict a new item to free bearers. People see `reason`."""
    db.execute(
        "UPDATE delivery SET satellite_from = NULL, unpaid = 1, reason = ? WHERE item = ?",
        *(reason, item),
    )


def end_escalation(db: Db, item: int) -> None:
    """Cancel the requests to webhooks with a delay. Called when a person has answered."""
    db.execute(
        "DELETE FROM webhook_delivery WHERE item = ? AND state = 'waiting' AND webhook IN"
        " (SELECT id FROM webhook WHERE after > 0)",
        item,
    )


def _collapse(db: Db, postings: Sequence[Posting], item_ids: Sequence[ItemIds], now: float) -> None:
    """End each waiting delivery that a newer item with the same collapse key replaces."""
    newest = {
        (posting.workspace, posting.sender, posting.collapse_key): each.item
        for posting, each in zip(postings, item_ids, strict=True)
        if posting.collapse_key is not None
    }
    if newest:
        membership, items = make_membership(db, newest.values())
        db.execute(
            "UPDATE delivery SET state = 'collapsed', ended = ?, reason = ?"
            " WHERE state = 'waiting' AND item IN"
            " (SELECT older.id FROM item AS newest"
            " JOIN item AS older ON older.workspace = newest.workspace"
            " AND older.sender = newest.sender AND older.collapse_key = newest.collapse_key"
            f" AND older.id <> newest.id WHERE newest.id {membership})",
            now,
            REPLACED_REASON,
            *items,
        )


def confirm(db: Db, item: int, device: int, bearer: Bearer, now: float) -> None:
    """Record that the device has the item on disk. This ends the delivery; a receipt is due."""
    confirm_all(db, [(item, device)], bearer, now)


def confirm_all(
    db: Db, deliveries: Collection[tuple[int, int]], bearer: Bearer, now: float
) -> None:
    """Call `confirm` for each pair of item and device, in one operation."""
    pairs = sorted(set(deliveries))
    for first in range(0, len(pairs), ROWS_MAX):
        _confirm(db, pairs[first : first + ROWS_MAX], bearer, now)


def _confirm(db: Db, pairs: Sequence[tuple[int, int]], bearer: Bearer, now: float) -> None:
    table, numbers = make_small_table(db, "told", ("item", "device"), pairs)
    confirmed = db.execute(
        f"{table} UPDATE delivery SET state = 'stored', way = ?, ended = ?, reason = ''"
        " WHERE (item, device) IN (SELECT item, device FROM told) AND state <> 'stored'"
        " RETURNING item, device",
        *(*numbers, bearer.value, now),
    )
    if not confirmed:
        return
    membership, devices = make_membership(db, {device for _, device in confirmed})
    ring_alerts.record_confirmations(db, membership, devices, now)
    members = dict(db.execute(f"SELECT id, member FROM device WHERE id {membership}", *devices))
    membership, items = make_membership(db, {item for item, _ in confirmed})
    sent = {
        item: row
        for item, *row in db.execute(
            "SELECT item.id, device.id, source_device, source_sequence, sos, incident, body,"
            f" restored IS NULL, {_IS_WANTED} FROM item LEFT JOIN device ON device.id ="
            " source_device"
            f" WHERE item.id {membership}",
            *items,
        )
    }
    owed_receipts = []
    senders, wanted = set(), set()
    for item, device in sorted(confirmed):
        sender, source, sequence, is_urgent, incident, body, is_first, is_wanted = sent[item]
        if is_wanted:
            wanted.add(item)
        if sender is not None and sequence is not None:
            digest = compute_item_digest(replace(decode_stored_entry(body), sequence=sequence))
            # The hub does not pay for the receipt of a restored item, because its kit may have got
            # the receipt before.
            worth = int(is_urgent and is_first)
            owed_receipts.append((sender, sequence, members[device], now, worth, "waiting", digest))
            senders.add(sender)
            if is_urgent:
                sos.record_item_stored(db, item, members[device], now)
        elif incident is not None and source is None:
            sos.record_text_received(db, item, members[device], now)
    insert(db, "receipt", RECEIPT, owed_receipts)
    if wanted:
        _queue_step_posts(db, sorted(wanted))
    for sender in senders:
        announce_answer(db, sender)


def record_stage(db: Db, item: int, member: int, stage: Stage, text: str, now: float) -> bool:
    """Store the stage that an item has reached with a member, and queue a receipt to the item's
    kit. Return True if the stage is new. Member 0 is the hub or a person who is not a member.
    """
    news = db.execute(
        "INSERT INTO reached (item, member, rung, text, at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING RETURNING item",
        *(item, member, stage, text, now),
    )
    if not news:
        return False
    ((device, sequence, body, is_wanted),) = db.execute(
        f"SELECT source_device, source_sequence, body, {_IS_WANTED} FROM item WHERE id = ?", item
    )
    if is_wanted:
        _queue_step_posts(db, [item])
    if device is not None and sequence is not None:
        digest = compute_item_digest(replace(decode_stored_entry(body), sequence=sequence))
        owe_receipt(db, device, sequence, digest, member, now, urgent=False, stage=stage, text=text)
    return True
