"""Database records for a TAK server: people at the server, and events to and from the server.

A row of `tak_event` is an item to or from the server. The states of an outgoing item are `waiting`,
`sent` (accepted by the server), `delivered` (confirmed by the phone), `read` (by a person), and
`over`. The state of an incoming item is `sent` after the hub has accepted it. The hub then sends
its author a receipt for `delivered` and a receipt for `read`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf

from fieldagent.extensions.tak import map_events as tak_map
from fieldagent.hub.bridge import tenure
from fieldagent.hub.field import texts_to_kits
from fieldagent.hub.records import ledger, sos
from fieldagent.hub.records.stored_entry import decode_stored_entry
from fieldagent.hub.store.contract import Db, make_membership
from fieldagent.package.delivery import Stage
from fieldagent.package.package import Item
from fieldagent.system.lazy_named_tuple import NamedTuple

NAME = "tak"
PREFIX = tak_map.PREFIX
"""Common prefix of the uids of all hubs' units, from which hubs recognise each other's units."""
OVER_AFTER_S = 86_400.0
"""Seconds after which an event is no longer sent or updated."""
REPEAT_WAITS_S = (60.0, 300.0, 900.0, 3_600.0)
"""Seconds until a message that a phone has not confirmed is sent again. The last value applies to
all later repeats."""
PEOPLE_MAX = 500
"""Largest number of people at the server who are members of the workspace."""
SERVER = "the TAK server"


class KitUser(NamedTuple):
    """A user with a kit, and the last position of the kit."""

    member: int
    name: str
    latitude: float | None
    longitude: float | None
    at: float | None
    """Unix time of the position."""
    way: str
    """Bearer over which the hub last heard the kit."""
    altitude: float | None = None
    speed: float | None = None
    course: float | None = None


_KITS = (
    "device JOIN member ON member.id = device.member JOIN membership"
    " ON membership.member = member.id AND membership.workspace = device.workspace"
)
_IN_USE = "device.workspace = ? AND device.disabled IS NULL AND member.disabled IS NULL"


def list_members_with_kits(db: Db, workspace: int) -> set[int]:
    """Return the ids of the members who have a kit that is in use."""
    rows = db.execute(f"SELECT DISTINCT member.id FROM {_KITS} WHERE {_IN_USE}", workspace)
    return {member for (member,) in rows}


def list_kit_users(db: Db, workspace: int, limit: int) -> list[KitUser]:
    """Return at most `limit` users with kits. Users with an open SOS come first, then the order is
    by id. If a user has several kits, the kit with the newest position is used.
    """
    rows = db.execute(
        "SELECT member.id, member.name, latitude, longitude, position_at, coalesce(way, ''),"
        " altitude, speed, course,"
        " EXISTS (SELECT 1 FROM sos WHERE sos.device = device.id AND sos.state <> 'closed'"
        " AND sos.kind = 'sos')"
        f" FROM {_KITS} LEFT JOIN contact ON contact.device = device.id WHERE {_IN_USE}"
        " ORDER BY member.id, device.id",
        workspace,
    )
    users: dict[int, KitUser] = {}
    first: set[int] = set()
    for *row, in_distress in rows:
        user = KitUser(*row)
        if in_distress:
            first.add(user.member)
        kit_user = users.get(user.member)
        if kit_user is None or (user.at or -inf) > (kit_user.at or -inf):
            users[user.member] = user
    ordered = sorted(users.values(), key=lambda each: (each.member not in first, each.member))
    return ordered[:limit]


class TakPerson(NamedTuple):
    member: int
    callsign: str
    uid: str


def make_member_name(callsign: str) -> str:
    """Return the member name for a person at the server. The name cannot be confused with an
    address or with another kind of name.
    """
    return f"{callsign.replace('@', ' at ').replace(':', ' ')} (TAK)"


def find_person(db: Db, workspace: int, callsign: str) -> TakPerson | None:
    """Return the person who uses this callsign at the TAK server, or None if no person does."""
    rows = db.execute(
        "SELECT member, callsign, uid FROM tak_person WHERE workspace = ? AND callsign = ?",
        *(workspace, callsign),
    )
    return TakPerson(*rows[0]) if rows else None


def record_person(db: Db, workspace: int, callsign: str, uid: str, now: float) -> TakPerson | None:
    """Return the person with this callsign. Add the person as a member at the first contact. From
    now on, messages to the person go to the phone `uid`. Return None if there are too many people
    already.
    """
    known_person = find_person(db, workspace, callsign)
    if known_person is None:
        ((person_count,),) = db.execute(
            "SELECT count(*) FROM tak_person WHERE workspace = ?", workspace
        )
        if person_count >= PEOPLE_MAX:
            return None
        member = texts_to_kits.add_text_author(db, workspace, make_member_name(callsign), now)
        db.execute(
            "INSERT INTO tak_person (workspace, callsign, member, uid) VALUES (?, ?, ?, ?)",
            *(workspace, callsign, member, uid),
        )
        return TakPerson(member, callsign, uid)
    if known_person.uid != uid:
        db.execute("UPDATE tak_person SET uid = ? WHERE member = ?", uid, known_person.member)
    return known_person._replace(uid=uid)


def record_return(db: Db, workspace: int, uid: str, now: float) -> None:
    """Record that a phone has connected again. Its unconfirmed messages are then sent again."""
    db.execute(
        "UPDATE tak_event SET not_before = ? WHERE inward = 0 AND state = 'sent' AND uid = ?"
        " AND person IN (SELECT member FROM tak_person WHERE workspace = ?)",
        *(now, uid, workspace),
    )


class NewItem(NamedTuple):
    id: int
    accepted: float
    sender: int
    target: int | None
    is_for_everybody: bool
    kind: str
    from_kit: bool
    is_unauthenticated: bool
    """True if the sender is not authenticated."""
    is_from_bridge: bool = False
    """True if a bridge received the item from a server."""


def list_fresh_items(db: Db, workspace: int, after: int, limit: int) -> list[NewItem]:
    """Return the items of a workspace with ids greater than `after`, oldest first. Items that kits
    sent back after a restore are not included.
    """
    rows = db.execute(
        "SELECT id, accepted, sender, target, target IS NULL AND team IS NULL, kind,"
        " source_device IS NOT NULL, unauthenticated, EXISTS (SELECT 1 FROM tak_event"
        " WHERE tak_event.item = item.id AND inward = 1) FROM item WHERE workspace = ? AND id > ?"
        " AND restored IS NULL"
        " ORDER BY id LIMIT ?",
        *(workspace, after, limit),
    )
    return [NewItem._make(row) for row in rows]


def list_people(db: Db, workspace: int) -> set[int]:
    """Return the members who are people at the server."""
    rows = db.execute("SELECT member FROM tak_person WHERE workspace = ?", workspace)
    return {member for (member,) in rows}


def queue_items(
    db: Db, items: Sequence[tuple[NewItem, int | None]], up_to: int, now: float
) -> None:
    """Add the items for the server, and store the place. Each item is for one person or for
    everyone. Skip items that were added before: if there are several hub processes, the place can
    be behind the last added item.
    """
    for item, person in items:
        db.execute(
            "INSERT INTO tak_event (item, member, person, inward, message_id, state, not_before,"
            " at) SELECT id, sender, ?, 0, request_id, 'waiting', ?, ? FROM item WHERE id = ?"
            " AND NOT EXISTS (SELECT 1 FROM tak_event WHERE tak_event.item = item.id"
            " AND inward = 0)",
            *(person, now, now, item.id),
        )
    tenure.store_place(db, NAME, up_to)


class OutEvent(NamedTuple):
    """An item that must be sent to the server."""

    id: int
    item: int
    member: int
    person: int | None
    callsign: str
    uid: str
    """Uid of the person's phone; empty if the item is for everyone."""
    message_id: str
    attempts: int
    content: Item
    moment: float
    """Unix time of the item."""


def list_due_events(db: Db, members: Collection[int], now: float, limit: int) -> list[OutEvent]:
    """Return the items that these members must send to the server now, in order: waiting items, and
    items that no phone has confirmed. Items of other members do not block these items.
    """
    membership, values = make_membership(db, sorted(members))
    rows = db.execute(
        "SELECT tak_event.id, item.id, tak_event.member, tak_event.person,"
        " coalesce(tak_person.callsign, ''), coalesce(tak_person.uid, ''), message_id, attempts,"
        " item.body FROM tak_event JOIN item ON item.id = tak_event.item LEFT JOIN tak_person"
        " ON tak_person.member = tak_event.person"
        f" WHERE inward = 0 AND tak_event.member {membership}"
        " AND tak_event.state IN ('waiting', 'sent') AND not_before <= ? AND at > ?"
        " ORDER BY tak_event.id LIMIT ?",
        *(*values, now, now - OVER_AFTER_S, limit),
    )
    events = []
    for *row, body in rows:
        entry = decode_stored_entry(body)
        assert isinstance(entry.content, Item), "the ledger holds items alone"
        events.append(OutEvent._make((*row, entry.content, float(entry.time))))
    return events


def record_sent(db: Db, out: OutEvent, now: float, *, handed: bool) -> None:
    """Record that the server has the item. `handed` is True if, as far as the hub knows, the server
    passes the item on.
    """
    state, again = "sent", now + REPEAT_WAITS_S[min(out.attempts, len(REPEAT_WAITS_S) - 1)]
    if out.person is None:
        state = "over"
    news = db.execute(
        "UPDATE tak_event SET state = ?, uid = ?, attempts = attempts + 1, not_before = ?"
        " WHERE id = ? AND state IN ('waiting', 'sent') RETURNING id",
        *(state, out.uid, again, out.id),
    )
    if news and out.person is not None and handed:
        ledger.record_stage(db, out.item, out.person, Stage.HANDED_OVER, SERVER, now)


def record_receipt(
    db: Db, workspace: int, uid: str, message_id: str, now: float, *, read: bool
) -> bool:
    """Record a receipt: a phone has a message from the hub, or a person has read it. Return True if
    the receipt is for a message from the hub that can still get receipts.
    """
    rows = db.execute(
        # Accept the state `waiting` too, because the receipt may arrive before the server confirms
        # the message.
        "SELECT tak_event.id, item, person, state, member.name FROM tak_event JOIN tak_person"
        " ON tak_person.member = person JOIN member ON member.id = person"
        " WHERE inward = 0 AND message_id = ? AND workspace = ?"
        " AND ? IN (tak_event.uid, tak_person.uid) AND state IN ('waiting', 'sent', 'delivered')",
        *(message_id, workspace, uid),
    )
    for id_, item, person, state, name in rows:
        if state != "delivered" and not _has_kit(db, person):
            ledger.record_stage(db, item, person, Stage.STORED, "", now)
        if read:
            ledger.record_stage(db, item, person, Stage.READ, name, now)
        db.execute(
            "UPDATE tak_event SET state = ? WHERE id = ?", "read" if read else "delivered", id_
        )
    return bool(rows)


def end_old_events(db: Db, now: float) -> None:
    """End the events that are older than `OVER_AFTER_S`. If no phone has confirmed a message, its
    author is notified.
    """
    end_sql = "UPDATE tak_event SET state = 'over' WHERE at <= ? AND state"
    db.execute(f"{end_sql} = 'delivered'", now - OVER_AFTER_S)
    rows = db.execute(
        f"{end_sql} IN ('waiting', 'sent') RETURNING item, person, inward", now - OVER_AFTER_S
    )
    for item, person, inward in rows:
        if inward or person is None or _has_kit(db, person):
            continue
        if not _has_come(db, item, person):
            reason = "no phone of theirs at the TAK server has confirmed it within a day"
            ledger.record_stage(db, item, person, Stage.NOBODY, reason, now)


def _has_kit(db: Db, person: int) -> bool:
    """Return True if the person has a kit, which may also deliver the item."""
    kits = "SELECT 1 FROM device WHERE member = ? AND disabled IS NULL"
    return bool(db.execute(kits, person))


def _has_come(db: Db, item: int, person: int) -> bool:
    stages = "SELECT 1 FROM reached WHERE item = ? AND member = ? AND rung IN (?, ?)"
    return bool(db.execute(stages, item, person, int(Stage.STORED), int(Stage.READ)))


def record_event(
    db: Db, member: int, uid: str, message_id: str, now: float, *, person: int | None
) -> int | None:
    """Record an event for a member and return its row. If the event arrived before, return None,
    and send its receipts again, because its author has not received them.
    """
    rows = db.execute(
        "INSERT INTO tak_event (member, person, inward, uid, message_id, state, not_before, at)"
        " VALUES (?, ?, 1, ?, ?, 'over', ?, ?) ON CONFLICT DO NOTHING RETURNING id",
        *(member, person, uid, message_id, now, now),
    )
    if rows:
        return int(rows[0][0])
    db.execute(
        "UPDATE tak_event SET state = 'sent' WHERE member = ? AND inward = 1 AND uid = ?"
        " AND message_id = ? AND item IS NOT NULL AND at > ?",
        *(member, uid, message_id, now - OVER_AFTER_S),
    )
    return None


def record_added_item(db: Db, row: int, item: int, price: int) -> None:
    """Record the item that was created from an event, and its largest possible cost in credits.
    From now on, the hub must send receipts to the author.
    """
    db.execute(
        "UPDATE tak_event SET item = ?, state = 'sent', credits = ? WHERE id = ?",
        *(item, price, row),
    )


def compute_spent_today(db: Db, now: float) -> int:
    """Return the credits that events from the server may have cost on this UTC day."""
    ((spent,),) = db.execute(
        "SELECT coalesce(sum(credits), 0) FROM tak_event WHERE credits > 0 AND at >= ?",
        now - now % 86_400,
    )
    return int(spent)


class PendingReceipt(NamedTuple):
    """A receipt that the hub must send to an author at the server: the kit has the message, or a
    person at the kit has read it.
    """

    id: int
    member: int
    uid: str
    callsign: str
    message_id: str
    state: str
    """State of the row in `tak_event`, `sent` or `delivered`. The receipt is recorded only if this
    state has not changed."""
    read: bool


def list_pending_receipts(db: Db, members: Collection[int], limit: int) -> list[PendingReceipt]:
    """Return the oldest receipts that the hub must send to authors of messages to these members.
    The receipt for storing a message comes before the receipt for reading it.
    """
    membership, values = make_membership(db, sorted(members))
    rows = db.execute(
        "SELECT id, member, uid, callsign, message_id, state, is_read FROM"
        " (SELECT tak_event.id, tak_event.member, tak_event.uid, callsign, message_id,"
        " tak_event.state, EXISTS (SELECT 1 FROM delivery WHERE delivery.item = tak_event.item"
        " AND delivery.state = 'stored') AS is_stored, EXISTS (SELECT 1 FROM reached WHERE"
        " reached.item = tak_event.item AND rung = ?) AS is_read FROM tak_event JOIN tak_person"
        " ON tak_person.member = tak_event.person"
        f" WHERE inward = 1 AND tak_event.member {membership}"
        " AND tak_event.state IN ('sent', 'delivered')) AS owed"
        " WHERE is_read OR (is_stored AND state = 'sent') ORDER BY id LIMIT ?",
        *(int(Stage.READ), *values, limit),
    )
    return [PendingReceipt._make((*row, bool(is_read))) for *row, is_read in rows]


def record_receipt_sent(db: Db, pending: PendingReceipt) -> None:
    """Record that the author has received a receipt. If the state has changed meanwhile, do
    nothing.
    """
    db.execute(
        "UPDATE tak_event SET state = ? WHERE id = ? AND state = ?",
        *("read" if pending.read else "delivered", pending.id, pending.state),
    )


class OpenAlert(NamedTuple):
    sos: int
    member: int
    ends: bool
    """True if the incident is closed and people at the server may have seen the alert."""
    raised_at: float = 0.0
    """Unix time when the incident was raised."""
    place: sos.IncidentPlace | None = None
    """Position of the incident; None if it is unknown."""


CANCELS = 3
"""Number of times that the end of an alert is sent."""


def list_alerts(db: Db, workspace: int) -> list[OpenAlert]:
    """Return the unanswered SOS of a workspace, and the closed SOS whose end must still be sent."""
    rows = db.execute(
        "SELECT sos.id, device.member, 0, sos.raised FROM sos JOIN device ON device.id = sos.device"
        " WHERE sos.workspace = ? AND sos.state = 'open' AND sos.kind = 'sos' UNION ALL"
        " SELECT sos.id, device.member, 1, sos.raised FROM tak_alert"
        " JOIN sos ON sos.id = tak_alert.sos JOIN device ON device.id = sos.device"
        " WHERE sos.workspace = ? AND sos.state = 'closed' AND cancels < ? ORDER BY 1",
        *(workspace, workspace, CANCELS),
    )
    return [
        OpenAlert(id_, member, bool(ends), raised_at, sos.find_place(db, id_))
        for id_, member, ends, raised_at in rows
    ]


def record_alert_sent(db: Db, alert: OpenAlert, now: float) -> None:
    """Record that the server has the alert, or its cancellation."""
    if alert.ends:
        db.execute("UPDATE tak_alert SET cancels = cancels + 1 WHERE sos = ?", alert.sos)
        return
    new = db.execute(
        "INSERT INTO tak_alert (sos) VALUES (?) ON CONFLICT DO NOTHING RETURNING sos", alert.sos
    )
    if new:
        detail = f"{SERVER}: shown there as a 911 alert"
        sos.record_event(db, alert.sos, "notified", now, detail=detail)
    else:
        db.execute("UPDATE tak_alert SET cancels = 0 WHERE sos = ? AND cancels > 0", alert.sos)


CALLED_OFF_THERE = "cancelled the alert in TAK: the SOS continues until a dispatcher takes it over"


def record_cancel_at_server(
    db: Db, workspace: int, member: int, canceller: str, now: float
) -> None:
    """Record that a person at the server has cancelled a user's alert. Each open incident of the
    user gets one note in its timeline, and stays open.
    """
    for (id_,) in db.execute(
        "SELECT sos.id FROM sos JOIN device ON device.id = sos.device WHERE sos.workspace = ?"
        " AND device.member = ? AND sos.state <> 'closed' AND sos.kind = 'sos' AND NOT EXISTS"
        " (SELECT 1 FROM sos_event WHERE sos_event.sos = sos.id AND detail = ?)",
        *(workspace, member, CALLED_OFF_THERE),
    ):
        sos.record_event(
            db, id_, "note", now, name=make_member_name(canceller), detail=CALLED_OFF_THERE
        )
