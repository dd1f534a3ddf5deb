"""Incidents: each SOS of a kit from beginning to end, and alarms of the hub such as overdue
check-ins.

The state `open` changes to `seen` and then to `closed`, or directly to `closed`. Everything that
the kit sends while the incident is open is added to the incident, because each item of the kit
contains the number of its incident. The incident opens again if the kit sends something that is not
older than the end of the incident. The hub also opens an incident that it does not know if the kit
names this incident as open, which can happen after a database was restored. Each step is an event
in the timeline of the incident. The hub sends texts of people to the kit as incident updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import floor

from fieldagent.hub.records.stored_entry import decode_stored_entry
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import IncidentState, Location, format_short_sos_number, get_date
from fieldagent.system.lazy_named_tuple import NamedTuple

EVENTS = "events"
"""Topic that is announced when something happens to an incident, or an item arrives."""
FRESH_S = 120.0
"""Seconds. If the device's last position is not older than this, it becomes the position of an SOS
that the device raises."""
SOS = "sos"
"""Kind of an incident that a person or their kit has raised. All other kinds are alarms that the
hub raises."""
ALARM = "alarm"
"""Name for all other kinds together, in the API."""
NAMED_ALONE = "reported by its kit; its text has not arrived yet"


class SosState(StrEnum):
    OPEN = "open"
    SEEN = "seen"
    CLOSED = "closed"


class Actor(NamedTuple):
    """A person who acts on an incident."""

    member: int | None
    """Id of the member; None for a contact who has no account."""
    name: str


class Sos(NamedTuple):
    """An incident: a row of the table of incidents. People are represented by their ids."""

    id: int
    workspace: int
    device: int
    item: int | None
    kind: str
    state: str
    raised: float
    seen: float | None
    seen_by: int | None
    closed: float | None
    number: int | None
    """Number that the kit gave the incident; None for an alarm."""
    seen_as: str
    """Name of the contact who has taken the incident, if the contact is not a member."""
    asked: int | None
    """Member who has been asked to take over the incident."""

    @property
    def is_alarm(self) -> bool:
        """Return True for an alarm that the hub raised. An incident with a number from a kit is an
        SOS, even if its kind is damaged.
        """
        return self.kind != SOS and self.number is None

    @property
    def short(self) -> str:
        """Number of the incident that people see."""
        return get_shown_number(self.id, self.number)


def get_shown_number(id_: int, number: int | None) -> str:
    """Return the number of an incident that people see: the kit's short number of an SOS, or the id
    of an alarm.
    """
    return str(id_) if number is None else format_short_sos_number(number)


_SOS = (
    "SELECT id, workspace, device, item, kind, state, raised, seen, seen_by, closed, number,"
    " seen_as, asked FROM sos WHERE "
)


def raise_incident(
    db: Db,
    workspace: int,
    device: int,
    item: int | None,
    now: float,
    *,
    kind: str = SOS,
) -> int:
    """Open an incident about a device, raised by `item`. Return the id of the incident."""
    id_ = _raise(db, workspace, device, item, now, kind=kind, number=None)
    assert id_ is not None, "an incident without a number conflicts with no other"
    return id_


def raise_numbered(
    db: Db, workspace: int, device: int, incident_number: int, item: int | None, now: float
) -> int | None:
    """Open an incident with a kit's number. Return the incident's id, or None if another process of
    the hub has just opened the incident. `item` is None if the kit named the incident before any
    item arrived.
    """
    return _raise(db, workspace, device, item, now, kind=SOS, number=incident_number)


def _raise(
    db: Db,
    workspace: int,
    device: int,
    item: int | None,
    now: float,
    *,
    kind: str,
    number: int | None,
) -> int | None:
    rows = db.execute(
        "INSERT INTO sos (workspace, device, item, kind, state, raised, number)"
        " VALUES (?, ?, ?, ?, 'open', ?, ?) ON CONFLICT (device, number) DO NOTHING RETURNING id",
        workspace,
        device,
        item,
        kind,
        now,
        number,
    )
    for (sos,) in rows:
        new_rows = db.execute(
            "SELECT latitude, longitude, position_at FROM contact WHERE device = ?"
            " AND position_at >= ?",
            *(device, now - FRESH_S),
        )
        for new_row in new_rows:
            _store_position(db, sos, *new_row)
        record_event(db, sos, "raised", now, detail="" if item else NAMED_ALONE)
        add_item(db, item, sos)
        return int(sos)
    return None


class JoinedIncident(NamedTuple):
    id: int
    rings: bool
    """True if this item raised the incident or opened it again."""
    escalates: bool
    """True if `rings`, or if the item is the first item of an incident that the kit had only named
    before."""


def join_incident(
    db: Db, workspace: int, device: int, incident_number: int, item: int, sent_at: float, now: float
) -> JoinedIncident:
    """Add an item to the incident with the kit's number `incident_number`, or raise this incident.
    `sent_at` is the Unix time when the kit sent the item. If the incident was closed before this
    time, it is opened again.
    """
    incident = find_by_kit(db, device, incident_number, locked=True)
    if incident is None:
        raised_incident = raise_numbered(db, workspace, device, incident_number, item, now)
        if raised_incident is not None:
            return JoinedIncident(raised_incident, True, True)
        incident = find_by_kit(db, device, incident_number, locked=True)
        assert incident is not None, "another has raised it"
    add_item(db, item, incident.id)
    # Round down, because `sent_at` is a whole number of seconds.
    if incident.closed is None or sent_at < floor(incident.closed):
        if incident.item is None:
            set_first_item(db, item, incident.id)
        record_event(db, incident.id, "item", now)
        return JoinedIncident(
            incident.id, False, incident.item is None and incident.state == SosState.OPEN
        )
    db.execute(
        "UPDATE sos SET state = 'open', seen = NULL, seen_by = NULL, seen_as = '',"
        " asked = NULL, closed = NULL, item = ? WHERE id = ?",
        item,
        incident.id,
    )
    record_event(db, incident.id, "raised", now, detail="again")
    return JoinedIncident(incident.id, True, True)


def set_first_item(db: Db, item: int, sos: int) -> None:
    """Make an item the first item of an incident that the kit had only named before."""
    db.execute("UPDATE sos SET item = ? WHERE id = ?", item, sos)


def add_item(db: Db, item: int | None, sos: int) -> None:
    """Add an item to an incident. The incident stores a copy of its newest position."""
    rows = db.execute(
        "UPDATE item SET incident = ? WHERE id = ? RETURNING kind, body, accepted", sos, item
    )
    for kind, body, accepted in rows:
        entry = decode_stored_entry(body) if kind == "location" else None
        if entry is not None and isinstance(location := entry.content, Location):
            at = min(get_date(location, entry.time).timestamp(), accepted)
            _store_position(db, sos, location.latitude, location.longitude, at)


def _store_position(db: Db, sos: int, latitude: float, longitude: float, at: float) -> None:
    db.execute(
        "UPDATE sos SET latitude = ?, longitude = ?, position_at = ? WHERE id = ?"
        " AND (position_at IS NULL OR position_at <= ?)",
        *(latitude, longitude, at, sos, at),
    )


class IncidentPlace(NamedTuple):
    latitude: float
    longitude: float
    at: float
    """Unix time of the position."""


def find_place(db: Db, id_: int) -> IncidentPlace | None:
    """Return the position of an incident: its own newest position, or the position of its device if
    that is newer and the incident is not closed. Return None if neither position is known.
    """
    ((state, *own, latitude, longitude, at),) = db.execute(
        "SELECT state, sos.latitude, sos.longitude, sos.position_at, contact.latitude,"
        " contact.longitude, contact.position_at FROM sos LEFT JOIN contact"
        " ON contact.device = sos.device WHERE sos.id = ?",
        id_,
    )
    places = [IncidentPlace(*own)] if own[-1] is not None else []
    if at is not None and state != SosState.CLOSED:
        places.append(IncidentPlace(latitude, longitude, float(at)))
    return max(places, key=lambda place: place.at, default=None)


def find_by_kit(db: Db, device: int, incident_number: int, *, locked: bool = False) -> Sos | None:
    """Return the incident with the kit's number `incident_number`, or None. If `locked` is True,
    other processes cannot change the incident during the transaction.
    """
    sql = _SOS + "device = ? AND number = ?" + (db.for_update() if locked else "")
    rows = db.execute(sql, device, incident_number)
    return Sos(*rows[0]) if rows else None


def record_event(
    db: Db,
    sos: int,
    event: str,
    now: float,
    *,
    member: int | None = None,
    name: str = "",
    detail: str = "",
) -> None:
    """Add an event to the timeline of an incident. The event is by a member, or by a contact with
    the given name.
    """
    db.execute(
        "INSERT INTO sos_event (sos, at, event, member, name, detail) VALUES (?, ?, ?, ?, ?, ?)",
        *(sos, now, event, member, name, detail),
    )
    db.announce(EVENTS)


def add_carrier(db: Db, sos: int, device: int) -> bool:
    """Store that a neighbour's device relayed a part of the incident. Return True if the device is
    new.
    """
    return bool(
        db.execute(
            "INSERT INTO sos_carrier (sos, device) VALUES (?, ?) ON CONFLICT DO NOTHING"
            " RETURNING sos",
            *(sos, device),
        )
    )


def list_carriers(db: Db, sos: int) -> list[int]:
    """Return the neighbours' devices that relayed a part of the incident."""
    rows = db.execute("SELECT device FROM sos_carrier WHERE sos = ? ORDER BY device", sos)
    return [device for (device,) in rows]


def list_ringing(db: Db, sos: int) -> list[int]:
    """Return the devices that have an SOS item of the incident and therefore show an SOS."""
    rows = db.execute(
        "SELECT DISTINCT delivery.device FROM item JOIN delivery ON delivery.item = item.id"
        " WHERE item.incident = ? AND item.sos = 1 AND delivery.state = 'stored'",
        sos,
    )
    return [device for (device,) in rows]


def record_item_stored(db: Db, item: int, member: int, now: float) -> None:
    """Record that the agent of a member has stored an item of an incident."""
    for incident in find_by_item(db, item):
        record_event(db, incident.id, "heard by", now, member=member)


def record_text_received(db: Db, item: int, member: int, now: float) -> None:
    """Record that the kit of a member has received a text about an incident that a person wrote at
    the hub.
    """
    for (id_,) in db.execute(
        "SELECT incident FROM item WHERE id = ? AND incident IS NOT NULL AND source_device IS NULL",
        item,
    ):
        record_event(db, id_, "answer on the kit", now, member=member)


def record_call_off(db: Db, incident: Sos, member: int, now: float, *, is_proved: bool) -> None:
    """Record that the kit has called off its incident. A person must check the call-off, because
    the kit's user may be under duress, or another person may have the kit.
    """
    doubt = "" if is_proved else "unauthenticated"
    record_event(db, incident.id, IncidentState.CALLED_OFF, now, member=member, detail=doubt)


def record_closure(db: Db, id_: int, now: float) -> None:
    """Record that a person has closed the incident. The kit knows this, but the restored database
    does not.
    """
    db.execute(
        "UPDATE sos SET state = 'closed', asked = NULL, closed = ?"
        " WHERE id = ? AND state <> 'closed'",
        *(now, id_),
    )
    record_event(db, id_, "closed", now, detail="as its kit was notified; the user is unknown")


def find_call_off(db: Db, id_: int) -> float | None:
    """Return the Unix time of the last authenticated call-off by the kit, or None if there is
    none.
    """
    ((at,),) = db.execute(
        "SELECT max(at) FROM sos_event WHERE sos = ? AND event = 'called off' AND detail = ''", id_
    )
    return None if at is None else float(at)


def find_by_item(db: Db, item: int) -> list[Sos]:
    """Return a list with the incident of this item. The list is empty if the item has no
    incident.
    """
    sql = _SOS + "item = ? OR id = (SELECT incident FROM item WHERE id = ?)"
    return [Sos(*row) for row in db.execute(sql, item, item)]


def list_items(db: Db, id_: int, limit: int) -> list[int]:
    """Return the newest `limit` items with a position and the newest `limit` other items of an
    incident, oldest first.
    """
    items: list[int] = []
    for kind in ("= 'location'", "<> 'location'"):
        sql = f"SELECT id FROM item WHERE incident = ? AND kind {kind} ORDER BY id DESC LIMIT ?"
        items += [item for (item,) in db.execute(sql, id_, limit)]
    return sorted(items)


def find_incident(db: Db, workspace: int, id_: int, *, locked: bool = False) -> Sos | None:
    """Return the incident with this id, or None. If `locked` is True, other processes cannot change
    the incident during the transaction.
    """
    sql = _SOS + "id = ? AND workspace = ?" + (db.for_update() if locked else "")
    rows = db.execute(sql, id_, workspace)
    return Sos(*rows[0]) if rows else None


def find_by_event(db: Db, event_number: int) -> Sos | None:
    """Return the incident of the timeline event with this number, or None."""
    rows = db.execute(_SOS + "id = (SELECT sos FROM sos_event WHERE id = ?)", event_number)
    return Sos(*rows[0]) if rows else None


_HAS_TEXT = (
    " AND (EXISTS (SELECT 1 FROM item WHERE item.incident = sos.id AND words LIKE ? ESCAPE '!')"
    " OR EXISTS (SELECT 1 FROM sos_event WHERE sos_event.sos = sos.id"
    " AND lower(detail) LIKE ? ESCAPE '!')"
    " OR EXISTS (SELECT 1 FROM device JOIN member ON member.id = device.member"
    " WHERE device.id = sos.device AND (lower(device.name) LIKE ? ESCAPE '!'"
    " OR lower(member.name) LIKE ? ESCAPE '!')))"
)


def list_sos(
    db: Db,
    workspace: int,
    state: str | None,
    before: int,
    limit: int,
    text: str = "",
    *,
    kind: str | None = None,
) -> Sequence[Sos]:
    """Return incidents, newest first. If `text` is not empty, return only incidents with the text
    in their items, their events, or the name of the device or user. `kind` is SOS, ALARM, or None
    for both.
    """
    state_condition = "" if state is None else " AND state = ?"
    state_condition += {
        None: "",
        SOS: f" AND (kind = '{SOS}' OR number IS NOT NULL)",
        ALARM: f" AND kind <> '{SOS}' AND number IS NULL",
    }[kind]
    pattern = text.casefold()
    for special in "!%_":
        pattern = pattern.replace(special, f"!{special}")
    rows = db.execute(
        f"{_SOS}workspace = ?{state_condition} AND id < ?{_HAS_TEXT if text else ''}"
        " ORDER BY id DESC LIMIT ?",
        workspace,
        *(() if state is None else (state,)),
        before,
        *([f"%{pattern}%"] * 4 if text else []),
        limit,
    )
    return [Sos(*row) for row in rows]


def list_events_behind(
    db: Db, workspace: int, after_place: int, limit: int
) -> list[tuple[int, float]]:
    """Return the ids and Unix times of events of a workspace, oldest first: at most `limit` events
    with an id above `after_place`.
    """
    rows = db.execute(
        "SELECT sos_event.id, at FROM sos_event JOIN sos ON sos.id = sos_event.sos"
        " WHERE sos_event.id > ? AND workspace = ? ORDER BY sos_event.id LIMIT ?",
        after_place,
        workspace,
        limit,
    )
    return [(number, float(at)) for number, at in rows]


def set_seen(db: Db, sos: int, actor: Actor, now: float) -> None:
    """Record that a person has taken the incident. The person is a member, or a contact who has
    only a name. A request to take over the incident ends.
    """
    db.execute(
        "UPDATE sos SET state = 'seen', seen = ?, seen_by = ?, seen_as = ?, asked = NULL"
        " WHERE id = ?",
        *(now, actor.member, "" if actor.member else actor.name, sos),
    )


def set_asked(db: Db, sos: int, member: int) -> None:
    """Record that a member has been asked to take over an SOS."""
    db.execute("UPDATE sos SET asked = ? WHERE id = ?", member, sos)


def set_closed(db: Db, sos: int, now: float) -> None:
    """Close an incident at the Unix time `now`. A request to take over the incident ends. From now
    on, the incident's position does not follow the device.
    """
    if (position := find_place(db, sos)) is not None:
        _store_position(db, sos, *position)
    db.execute("UPDATE sos SET state = 'closed', asked = NULL, closed = ? WHERE id = ?", now, sos)
