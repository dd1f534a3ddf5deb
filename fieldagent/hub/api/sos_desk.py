"""Actions of a person on an SOS: acknowledge it, take it over, add a note, close it.

The kit receives the name of the person who has seen or closed the SOS, and the person's text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fieldagent.hub.access.caller import ANSWERING, make_not_a_dispatcher
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.api import reading
from fieldagent.hub.api.reading import ReadItem
from fieldagent.hub.api.standing import find_shown_state
from fieldagent.hub.records import alarm, due_receipts, ledger, sos
from fieldagent.hub.records.audit import CONTACT, write_line
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.records.sos import Actor, Sos, SosState
from fieldagent.hub.store.contract import Db, make_marks
from fieldagent.package.package import SOS_PRIORITY, IncidentState, Message
from fieldagent.system.wording import sentence

GRACE_S = 10.0
"""Seconds that the IP link has to deliver a text to the kit before the hub pays for a satellite
message."""
ANSWER_PRIORITY = SOS_PRIORITY - 1
"""Priority of a person's answer to the kit. It is higher than the priority of all other texts, and
lower than that of an SOS."""
STEPS_MAX = 100
"""Largest number of steps of people (events other than the automatic ones) in a thread. The newest
are shown."""
SHOWN_ITEMS = 50
"""Largest number of texts, and of positions, that the hub shows of an incident. The newest are
shown."""
SINGLE_STEPS_MAX = 3
"""Largest number of automatic steps of one kind that a thread shows individually. Further steps are
shown as one step with a count."""
AUTOMATIC_STEPS = ("heard by", "notified", "not notified", "webhook", "escalated", "heard")
"""Kinds of automatic steps. There can be many such steps, because each kit or contact can cause
one."""
STEPS_OF_ITEMS = ("item", "answered", "answer on the kit")
"""Kinds of steps that a thread leaves out, because it contains the item of each such step."""
TEXT_MAX = 2_000
"""Largest number of characters of a note or reason."""


def acknowledge(db: Db, incident: Sos, member: int, text: str, now: float) -> Sos:
    """Record that a person has seen an SOS. If the same person has already seen it, nothing
    changes. Raises Refused if another person has seen the SOS or if the SOS is closed.
    """
    if incident.state == SosState.SEEN and incident.seen_by == member:
        return incident
    return acknowledge_as(db, incident, Actor(member, _read_name(db, member)), text, now)


def acknowledge_as(db: Db, incident: Sos, by: Actor, text: str, now: float) -> Sos:
    """Acknowledge an SOS for a person who may not be a member. Raises Refused if the SOS has
    already been seen or closed.
    """
    if incident.state != SosState.OPEN:
        raise Refused(explain_end(db, incident))
    _mark_seen(db, incident, by, now)
    member, name = by.member, "" if by.member else by.name
    sos.record_event(db, incident.id, "seen", now, member=member, name=name, detail=text)
    due_receipts.owe_incident_update(db, incident, IncidentState.SEEN, by.name, text, now)
    actor, author_text = (str(member), "") if member else (CONTACT, f" by {by.name}")
    _audit_act(db, incident, actor, "acknowledge", f"{incident.id}{author_text}", now)
    return _repeat_result(db, incident)


def take_over(db: Db, incident: Sos, member: int, text: str, now: float) -> Sos:
    """Take over an SOS from another person, who may be asleep or absent. The kit receives the new
    name. Raises Refused if the SOS is closed.
    """
    if incident.state != SosState.SEEN or incident.seen_by == member:
        return acknowledge(db, incident, member, text, now)
    name = _read_name(db, member)
    before = incident.seen_as or _read_name(db, incident.seen_by)
    alarm.cancel_messages(db, incident.id)
    sos.set_seen(db, incident.id, Actor(member, name), now)
    detail = f"from {before}{f': {text}' if text else ''}"
    sos.record_event(db, incident.id, "taken over", now, member=member, detail=detail)
    due_receipts.owe_incident_update(db, incident, IncidentState.SEEN, name, text, now)
    _audit_act(db, incident, str(member), "take over", f"{incident.id} from {before}", now)
    return _repeat_result(db, incident)


def hand_over(
    db: Db, incident: Sos, member: int, next_dispatcher: int, text: str, now: float
) -> Sos:
    """Ask another dispatcher to take over an SOS. Until this dispatcher accepts, the SOS stays with
    the caller. Raises Refused if the SOS is not with the caller, or if the other dispatcher may not
    answer an SOS.
    """
    if incident.state != SosState.SEEN or incident.seen_by != member:
        raise Refused(_check_its_user(incident))
    if next_dispatcher == member:
        raise Refused(
            sentence("user {heir} is not another dispatcher of this workspace", heir=member)
        )
    if next_dispatcher not in list_dispatchers(db, incident.workspace):
        raise Refused(make_not_a_dispatcher(next_dispatcher))
    detail = f"to {_read_name(db, next_dispatcher)}, once they take it{f': {text}' if text else ''}"
    sos.record_event(db, incident.id, "handed over", now, member=member, detail=detail)
    sos.set_asked(db, incident.id, next_dispatcher)
    handover_text = f"{_read_name(db, member)}{f': {text}' if text else ''}"
    alarm.cancel_messages(db, incident.id)
    alarm.notify_next_dispatcher(db, incident.id, next_dispatcher, handover_text, now)
    _audit_act(db, incident, str(member), "hand over", f"{incident.id} to {next_dispatcher}", now)
    return _repeat_result(db, incident)


def close_incident(db: Db, incident: Sos, member: int, reason: str, now: float) -> Sos:
    """Close an SOS. Raises Refused if the SOS is closed already."""
    if incident.state == SosState.CLOSED:
        raise Refused(explain_end(db, incident))
    if incident.state == SosState.OPEN:
        _mark_seen(db, incident, Actor(member, _read_name(db, member)), now)
    # Also cancel a request to take over the incident, which is such a message.
    alarm.cancel_messages(db, incident.id)
    sos.set_closed(db, incident.id, now)
    sos.record_event(db, incident.id, "closed", now, member=member, detail=reason)
    due_receipts.owe_incident_update(
        db, incident, IncidentState.CLOSED, _read_name(db, member), reason, now
    )
    _audit_act(db, incident, str(member), "close", str(incident.id), now)
    return _repeat_result(db, incident)


def add_note(db: Db, incident: Sos, member: int, text: str, now: float) -> Sos:
    """Add a note to the timeline of an SOS, even if the SOS is closed."""
    sos.record_event(db, incident.id, "note", now, member=member, detail=text)
    return incident


def send_text_to_kit(db: Db, incident: Sos, member: int, text: str, now: float) -> Sos:
    """Send a person's text to the kit of an SOS, even if the SOS is closed. The text appears in the
    thread. Raises Refused if the kit cannot receive the text.
    """
    ((kit_member,),) = db.execute("SELECT member FROM device WHERE id = ?", incident.device)
    if not can_kit_receive(db, incident):
        raise Refused("the kit is disabled: nothing is sent to it")
    posting = Posting(
        incident.workspace, member, Message(text), int(now), ANSWER_PRIORITY, target=int(kit_member)
    )
    added = ledger.add_item(db, posting, now=now, grace=GRACE_S)
    sos.add_item(db, added.item, incident.id)
    sos.record_event(db, incident.id, "answered", now, member=member, detail=text)
    return incident


def can_kit_receive(db: Db, incident: Sos) -> bool:
    """Return True if the kit of an incident can receive items, because it is neither revoked nor
    disabled.
    """
    return bool(
        db.execute("SELECT 1 FROM device WHERE id = ? AND disabled IS NULL", incident.device)
    )


def _mark_seen(db: Db, incident: Sos, actor: Actor, now: float) -> None:
    sos.set_seen(db, incident.id, actor, now)
    alarm.cancel_messages(db, incident.id)
    if incident.item is not None:
        ledger.end_escalation(db, incident.item)


def _repeat_result(db: Db, incident: Sos) -> Sos:
    changed = sos.find_incident(db, incident.workspace, incident.id)
    assert changed is not None, "nothing removes one meanwhile"
    return changed


def _audit_act(db: Db, incident: Sos, actor: str, action: str, detail: str, now: float) -> None:
    """Write an action on an incident to the audit log."""
    kind = sos.ALARM if incident.is_alarm else sos.SOS
    write_line(db, incident.workspace, actor, f"{kind} {action}", detail, now)


def explain_end(db: Db, incident: Sos) -> str:
    """Return the reason why the incident cannot be acknowledged now: it is closed, or a person
    already has it.
    """
    if incident.state == SosState.CLOSED:
        if incident.is_alarm:
            return sentence("alarm {id} is closed", id=incident.short)
        return sentence("SOS {id} is closed", id=incident.short)
    answerer = find_answerer(db, incident)
    if incident.is_alarm:
        return sentence("{who} already has alarm {id}", who=answerer, id=incident.short)
    return sentence("{who} already has SOS {id}", who=answerer, id=incident.short)


def _check_its_user(incident: Sos) -> str:
    if incident.is_alarm:
        return sentence("only the user who has alarm {id} can hand it over", id=incident.short)
    return sentence("only the user who has SOS {id} can hand it over", id=incident.short)


def find_answerer(db: Db, incident: Sos) -> str:
    """Return the name of the person who acknowledged the incident."""
    return incident.seen_as or _read_name(db, incident.seen_by)


def list_dispatchers(db: Db, workspace: int) -> list[int]:
    """Return the ids of the members who may acknowledge an SOS."""
    rows = db.execute(
        "SELECT member.id FROM member JOIN membership ON membership.member = member.id"
        " WHERE membership.workspace = ? AND role IN (?, ?) AND type = 'User' AND disabled IS NULL"
        " ORDER BY member.id",
        workspace,
        *ANSWERING,
    )
    return [member for (member,) in rows]


def record_webhook_post(db: Db, item: int, webhook: int, now: float) -> None:
    """Record that a webhook has accepted the item that raised an incident, or the escalation of
    this item.
    """
    rows = db.execute("SELECT after FROM webhook WHERE id = ?", webhook)
    event = "escalated" if rows and rows[0][0] else "webhook"
    for incident in sos.find_by_item(db, item):
        if incident.item == item:
            sos.record_event(db, incident.id, event, now, detail=f"webhook {webhook}")
            if event == "escalated":
                alarm.queue_escalation(db, incident.id, now)


def describe_for_pager(db: Db, id_: int, desk: str, link: str = "") -> dict[str, Any]:
    """Return the facts about an incident for a notification: the incident, its device, its last
    position with a map link, and the answer address. `link` is the path of a link that acknowledges
    once. If `link` is empty, the address is the desk. `desk` is the console's address.
    """
    ((kind, number, device, state, revoked),) = db.execute(
        "SELECT sos.kind, sos.number, device.name, sos.state, revoked FROM sos"
        " JOIN device ON device.id = sos.device WHERE sos.id = ?",
        id_,
    )
    facts: dict[str, Any] = {"id": id_, "number": number, "device": device, "state": state}
    facts["short"] = sos.get_shown_number(id_, number)
    if revoked is not None:
        facts["revokedSince"] = float(revoked)
    if (known_place := sos.find_place(db, id_)) is not None:
        latitude, longitude, at = known_place
        place = f"mlat={latitude:.5f}&mlon={longitude:.5f}"
        facts["position"] = {
            "latitude": latitude,
            "longitude": longitude,
            "at": at,
            "map": f"https://www.openstreetmap.org/?{place}",
            "geo": f"geo:{latitude:.5f},{longitude:.5f}",
        }
    if desk:
        facts["desk"] = f"{desk}/console/{sos.SOS if kind == sos.SOS else sos.ALARM}/{id_}"
        facts |= {"acknowledge": f"{desk}{link}"} if link else {}
    return facts


def _read_name(db: Db, member: int | None) -> str:
    rows = db.execute("SELECT name FROM member WHERE id = ?", member or 0)
    return str(rows[0][0]) if rows else f"user {member}"


def describe_sos(db: Db, incident: Sos) -> dict[str, Any]:
    """Return an incident in the form of the API, with its newest `SHOWN_ITEMS` items, its thread
    and its last position.
    """
    raising_items = [] if incident.item is None else [incident.item]
    first = reading.list_items(db, raising_items)
    numbers = {*raising_items, *sos.list_items(db, incident.id, SHOWN_ITEMS)}
    thread = reading.list_items(db, sorted(numbers))[::-1]
    kit_texts = [each for each in thread if each.device is not None]
    ((name, revoked, revocation_reason),) = db.execute(
        "SELECT name, revoked, revoked_why FROM device WHERE id = ?", incident.device
    )
    place = sos.find_place(db, incident.id)
    return {
        "id": incident.id,
        "kind": incident.kind,
        "state": incident.state,
        "raised": float(incident.raised),
        "device": {"id": incident.device, "name": name},
        "number": incident.number,
        "short": incident.short,
        "item": first[0].encode() if first else None,
        "items": [each.encode() for each in kit_texts],
        "thread": _list_thread(db, incident, thread),
        "unauthenticated": bool(kit_texts)
        and all(each.marks.unauthenticated for each in kit_texts),
        "revoked": None if revoked is None else {"since": float(revoked), "why": revocation_reason},
        "calledOff": sos.find_call_off(db, incident.id),
        "position": None if place is None else place._asdict(),
        "seen": None
        if incident.seen is None
        else {
            "at": float(incident.seen),
            "by": {"id": None, "name": incident.seen_as}
            if incident.seen_as
            else {"id": str(incident.seen_by), "name": _read_name(db, incident.seen_by)},
        },
        "askedToTakeOver": None
        if incident.asked is None
        else {"id": str(incident.asked), "name": _read_name(db, incident.asked)},
        "closed": None if incident.closed is None else float(incident.closed),
    }


_EVENT = (
    "SELECT at, event, sos_event.member, coalesce(member.name, sos_event.name), detail FROM"
    " sos_event"
    " LEFT JOIN member ON member.id = sos_event.member WHERE "
)


def _list_thread(db: Db, incident: Sos, items: Sequence[ReadItem]) -> list[dict[str, Any]]:
    """Return the texts in both directions and the steps of people, oldest first. Each text has its
    item and the deliveries of the item. Each kind of step has a separate limit, so that no kind
    displaces the texts.
    """
    steps = [*_list_steps_of_people(db, incident.id), *_list_steps_of_machines(db, incident.id)]
    reached = _list_reached(db, [each.number for each in items if each.device is None])
    for each in items:
        own = each.device is not None
        step = {
            "at": each.accepted,
            "event": "said" if own else "answered",
            "by": {"id": each.sender.id, "name": each.sender.name},
            "detail": "",
            "count": 1,
            "item": each.encode(),
            "reached": reached.get(each.number, []),
        }
        steps.append(step)
    # If the times are equal, an item comes after the step that raised the incident.
    return sorted(steps, key=lambda step: (step["at"], step["event"] == "said"))


def _list_steps_of_people(db: Db, id_: int) -> list[dict[str, Any]]:
    left_out = (*AUTOMATIC_STEPS, *STEPS_OF_ITEMS)
    rows = db.execute(
        _EVENT
        + f"sos = ? AND event NOT IN ({make_marks(left_out)}) ORDER BY sos_event.id DESC LIMIT ?",
        *(id_, *left_out, STEPS_MAX),
    )
    return [_describe_step(_encode_event(*row), 1) for row in rows[::-1]]


def _list_steps_of_machines(db: Db, id_: int) -> list[dict[str, Any]]:
    """Return the automatic steps. If there are many steps of one kind, return only the newest of
    them, with their number.
    """
    rows = db.execute(
        "SELECT id, many FROM (SELECT id, count(*) OVER (PARTITION BY event) AS many, row_number()"
        " OVER (PARTITION BY event ORDER BY id DESC) AS place FROM sos_event WHERE sos = ?"
        f" AND event IN ({make_marks(AUTOMATIC_STEPS)})) AS counted"
        " WHERE place = 1 OR many <= ? ORDER BY id",
        *(id_, *AUTOMATIC_STEPS, SINGLE_STEPS_MAX),
    )
    return [
        _describe_step(
            encode_desk_event(db, number), step_count if step_count > SINGLE_STEPS_MAX else 1
        )
        for number, step_count in rows
    ]


def _describe_step(event: dict[str, Any], count: int) -> dict[str, Any]:
    return {**event, "count": count, "item": None, "reached": []}


def _list_reached(db: Db, items: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """Return the deliveries of each text to each addressed device."""
    standings: dict[int, list[dict[str, Any]]] = {}
    if items:
        rows = db.execute(
            "SELECT item, device.name, state, ended FROM delivery JOIN device"
            f" ON device.id = delivery.device WHERE item IN ({make_marks(items)}) ORDER BY"
            " device.id",
            *items,
        )
        for item, name, state, ended_at in rows:
            at = ended_at and float(ended_at)
            device_standing = {"device": name, "state": find_shown_state(state), "ended": at}
            standings.setdefault(item, []).append(device_standing)
    return standings


def list_timeline(db: Db, id_: int) -> list[dict[str, Any]]:
    """Return the events of an SOS, oldest first, in the form of the API."""
    return [
        _encode_event(*row) for row in db.execute(_EVENT + "sos = ? ORDER BY sos_event.id", id_)
    ]


def encode_desk_event(db: Db, event_number: int) -> dict[str, Any]:
    """Return one event of an incident in the form of the API. Raises ValueError if there is no
    event with this number.
    """
    (row,) = db.execute(_EVENT + "sos_event.id = ?", event_number)
    return _encode_event(*row)


def _encode_event(
    at: float, event: str, member: int | None, name: str, detail: str
) -> dict[str, Any]:
    id_ = None if member is None else str(member)
    person = {"id": id_, "name": name} if member is not None or name else None
    return {"at": float(at), "event": event, "by": person, "detail": detail}
