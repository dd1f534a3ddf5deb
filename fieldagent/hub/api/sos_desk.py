"""What a person does about an SOS: acknowledge it, take it over, note something, close it.

Its kit is told who has seen it, or closed it, and what they say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fieldagent.hub.access.caller import ANSWERING
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.api import reading
from fieldagent.hub.api.reading import ReadItem
from fieldagent.hub.api.standing import STATES
from fieldagent.hub.records import alarm, ledger, owed, sos
from fieldagent.hub.records.audit import CONTACT, note
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.records.sos import Sos, SosState, Who
from fieldagent.hub.store.contract import Db, marks
from fieldagent.package.package import SOS_PRIORITY, Message, Said
from fieldagent.system.sentence import sentence

GRACE = 10.0
"""Seconds that the IP link has for words to the kit before a satellite message is paid for."""
ANSWER_PRIORITY = SOS_PRIORITY - 1
"""Ahead of all else that people write; an SOS's own answer goes first."""
THREAD_MAX = 100
"""Steps of a thread, the newest."""
SHOWN_ITEMS = 50
"""Items of an incident, the newest."""
TEXT_MAX = 2_000
"""Characters of a note or reason."""


def acknowledge(db: Db, found: Sos, member: int, text: str, now: float) -> Sos:
    """Note that a person has seen an SOS; once more by the same person changes nothing. Raises
    Refused."""
    if found.state == SosState.SEEN and found.seen_by == member:
        return found
    return acknowledge_as(db, found, Who(member, _name(db, member)), text, now)


def acknowledge_as(db: Db, found: Sos, who: Who, text: str, now: float) -> Sos:
    """Let somebody have it who may be no member. Raises Refused where it is seen or closed."""
    if found.state != SosState.OPEN:
        raise Refused(why_over(db, found))
    _see(db, found, who, now)
    member, name = who.member, "" if who.member else who.name
    sos.note_event(db, found.id, "seen", now, member=member, name=name, detail=text)
    owed.owe_word(db, found, Said.SEEN, who.name, text, now)
    actor, whose = (str(member), "") if member else (CONTACT, f" by {who.name}")
    note(db, found.workspace, actor, "sos acknowledge", f"{found.id}{whose}", now)
    return _again(db, found)


def take_over(db: Db, found: Sos, member: int, text: str, now: float) -> Sos:
    """Let somebody have it whom another has it from: who fell asleep or went home keeps nobody
    from it. Its kit is told whom to reckon with. Raises Refused where it is closed."""
    if found.state != SosState.SEEN or found.seen_by == member:
        return acknowledge(db, found, member, text, now)
    name = _name(db, member)
    before = found.seen_as or _name(db, found.seen_by)
    alarm.end(db, found.id)
    sos.set_seen(db, found.id, Who(member, name), now)
    detail = f"from {before}{f': {text}' if text else ''}"
    sos.note_event(db, found.id, "taken over", now, member=member, detail=detail)
    owed.owe_word(db, found, Said.SEEN, name, text, now)
    note(db, found.workspace, str(member), "sos take over", f"{found.id} from {before}", now)
    return _again(db, found)


def hand_over(db: Db, found: Sos, member: int, heir: int, text: str, now: float) -> Sos:
    """Let who has it ask another dispatcher to take it over: until they do, it stays theirs. Raises
    Refused where they do not have it, or the other answers none."""
    if found.state != SosState.SEEN or found.seen_by != member:
        raise Refused(sentence("only who has SOS {id} hands it over", id=found.id))
    if heir == member or heir not in dispatchers(db, found.workspace):
        raise Refused(sentence("user {heir} is no other dispatcher of this workspace", heir=heir))
    detail = f"to {_name(db, heir)}, once they take it{f': {text}' if text else ''}"
    sos.note_event(db, found.id, "handed over", now, member=member, detail=detail)
    sos.set_asked(db, found.id, heir)
    words = f"{_name(db, member)}{f': {text}' if text else ''}"
    alarm.end(db, found.id)
    alarm.ask(db, found.id, heir, words, now)
    note(db, found.workspace, str(member), "sos hand over", f"{found.id} to {heir}", now)
    return _again(db, found)


def close(db: Db, found: Sos, member: int, reason: str, now: float) -> Sos:
    """Close an SOS. Raises Refused where it is closed already."""
    if found.state == SosState.CLOSED:
        raise Refused(why_over(db, found))
    if found.state == SosState.OPEN:
        _see(db, found, Who(member, _name(db, member)), now)
    alarm.end(db, found.id)  # also for who was asked to take it over
    sos.set_closed(db, found.id, now)
    sos.note_event(db, found.id, "closed", now, member=member, detail=reason)
    owed.owe_word(db, found, Said.CLOSED, _name(db, member), reason, now)
    note(db, found.workspace, str(member), "sos close", str(found.id), now)
    return _again(db, found)


def write_down(db: Db, found: Sos, member: int, text: str, now: float) -> Sos:
    """Write a note into the timeline of an SOS, also of one that is closed."""
    sos.note_event(db, found.id, "note", now, member=member, detail=text)
    return found


def write_to(db: Db, found: Sos, member: int, text: str, now: float) -> Sos:
    """Send words of a person here down to its kit: they stand in its thread, also once it is
    closed. Raises Refused where nobody can be written to."""
    ((to,),) = db.execute("SELECT member FROM device WHERE id = ?", found.device)
    if not is_kit_told(db, found):
        raise Refused("its kit is out of use: nothing goes to it")
    posting = Posting(
        found.workspace, member, Message(text), int(now), ANSWER_PRIORITY, target=int(to)
    )
    entered = ledger.enter(db, posting, now=now, grace=GRACE)
    sos.belongs(db, entered.item, found.id)
    sos.note_event(db, found.id, "answered", now, member=member, detail=text)
    return found


def is_kit_told(db: Db, found: Sos) -> bool:
    """Return whether anything goes to its kit: nothing does to one that is revoked, or out of
    use."""
    return bool(db.execute("SELECT 1 FROM device WHERE id = ? AND disabled IS NULL", found.device))


def _see(db: Db, found: Sos, who: Who, now: float) -> None:
    sos.set_seen(db, found.id, who, now)
    alarm.end(db, found.id)
    if found.item is not None:
        ledger.end_escalation(db, found.item)


def _again(db: Db, found: Sos) -> Sos:
    changed = sos.named(db, found.workspace, found.id)
    assert changed is not None, "nothing removes one meanwhile"
    return changed


def why_over(db: Db, found: Sos) -> str:
    """Return why nobody else can answer it."""
    if found.state == SosState.CLOSED:
        return sentence("SOS {id} is closed", id=found.id)
    return sentence("{who} has SOS {id} already", who=who_has(db, found), id=found.id)


def who_has(db: Db, found: Sos) -> str:
    """Return the name of who acknowledged it."""
    return found.seen_as or _name(db, found.seen_by)


def dispatchers(db: Db, workspace: int) -> list[int]:
    """Return who may acknowledge one."""
    rows = db.execute(
        "SELECT member.id FROM member JOIN membership ON membership.member = member.id"
        " WHERE membership.workspace = ? AND role IN (?, ?) AND type = 'User' AND disabled IS NULL"
        " ORDER BY member.id",
        workspace,
        *ANSWERING,
    )
    return [member for (member,) in rows]


def note_posted(db: Db, item: int, webhook: int, now: float) -> None:
    """Write down that a webhook has taken an item of an incident: what raised it, or an escalation
    of that."""
    rows = db.execute("SELECT after FROM webhook WHERE id = ?", webhook)
    event = "escalated" if rows and rows[0][0] else "webhook"
    for found in sos.of_item(db, item):
        if found.item == item:
            sos.note_event(db, found.id, event, now, detail=f"webhook {webhook}")
            if event == "escalated":
                alarm.escalate(db, found.id, now)


def for_a_pager(db: Db, id_: int, desk: str, link: str = "") -> dict[str, Any]:
    """Return what somebody who is woken needs: which incident of which device, where it was last
    with a link to a map, and where to answer: at the desk, or by `link`, which is the path of one
    that acknowledges it once. `desk` is the console's address."""
    ((number, device, state, revoked, latitude, longitude, at),) = db.execute(
        "SELECT sos.number, device.name, sos.state, revoked, latitude, longitude, position_at"
        " FROM sos"
        " JOIN device ON device.id = sos.device LEFT JOIN contact ON contact.device = device.id"
        " WHERE sos.id = ?",
        id_,
    )
    told: dict[str, Any] = {"id": id_, "number": number, "device": device, "state": state}
    if revoked is not None:
        told["revokedSince"] = float(revoked)
    if at is not None:
        place = f"mlat={latitude:.5f}&mlon={longitude:.5f}"
        told["position"] = {
            "latitude": latitude,
            "longitude": longitude,
            "at": float(at),
            "map": f"https://www.openstreetmap.org/?{place}",
            "geo": f"geo:{latitude:.5f},{longitude:.5f}",
        }
    if desk:
        told["desk"] = f"{desk}/console/sos/{id_}"
        told |= {"acknowledge": f"{desk}{link}"} if link else {}
    return told


def _name(db: Db, member: int | None) -> str:
    rows = db.execute("SELECT name FROM member WHERE id = ?", member or 0)
    return str(rows[0][0]) if rows else f"user {member}"


def shown(db: Db, found: Sos) -> dict[str, Any]:
    """Return an SOS as a dispatcher is told of it, with what was sent, and where the device was
    last."""
    numbers = sos.items_of(db, found.id, SHOWN_ITEMS)
    first = [] if found.item is None else reading.items(db, [found.item])
    thread = reading.items(db, numbers)[::-1]
    said = [each for each in thread if each.device is not None]
    ((name, revoked, why, latitude, longitude, at),) = db.execute(
        "SELECT name, revoked, revoked_why, latitude, longitude, position_at FROM device"
        " LEFT JOIN contact ON contact.device = device.id WHERE device.id = ?",
        found.device,
    )
    known = at is not None
    return {
        "id": found.id,
        "kind": found.kind,
        "state": found.state,
        "raised": float(found.raised),
        "device": {"id": found.device, "name": name},
        "number": found.number,
        "item": first[0].as_json() if first else None,
        "items": [each.as_json() for each in said],
        "thread": _thread(db, found, thread),
        "unauthenticated": bool(said) and all(each.marks.unauthenticated for each in said),
        "revoked": None if revoked is None else {"since": float(revoked), "why": why},
        "calledOff": sos.called_off(db, found.id),
        "position": {"latitude": latitude, "longitude": longitude, "at": at} if known else None,
        "seen": None
        if found.seen is None
        else {
            "at": float(found.seen),
            "by": {"id": None, "name": found.seen_as}
            if found.seen_as
            else {"id": str(found.seen_by), "name": _name(db, found.seen_by)},
        },
        "askedToTakeOver": None
        if found.asked is None
        else {"id": str(found.asked), "name": _name(db, found.asked)},
        "closed": None if found.closed is None else float(found.closed),
    }


_EVENT = (
    "SELECT at, event, sos_event.member, coalesce(member.name, sos_event.name), detail FROM"
    " sos_event"
    " LEFT JOIN member ON member.id = sos_event.member WHERE "
)


def _thread(db: Db, found: Sos, items: Sequence[ReadItem]) -> list[dict[str, Any]]:
    """Return what was said, both ways, and who did what, in its order, the newest last: each with
    the item that it is, and how far that has come."""
    rows = db.execute(
        _EVENT + "sos = ? AND event NOT IN ('item', 'answered', 'answer on the kit')"
        " ORDER BY sos_event.id DESC LIMIT ?",
        *(found.id, THREAD_MAX),
    )
    steps = [{**_event(*row), "item": None, "reached": []} for row in rows[::-1]]
    reached = _reached(db, [each.number for each in items if each.device is None])
    for each in items:
        own = each.device is not None
        step = {
            "at": each.accepted,
            "event": "said" if own else "answered",
            "by": {"id": each.sender.id, "name": each.sender.name},
            "detail": "",
            "item": each.as_json(),
            "reached": reached.get(each.number, []),
        }
        steps.append(step)
    # Where two are of one moment, what raised it stands after that it was raised.
    return sorted(steps, key=lambda step: (step["at"], step["event"] == "said"))[-THREAD_MAX:]


def _reached(db: Db, items: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """Return how far words to a kit have come, for each device that is to have them."""
    found: dict[int, list[dict[str, Any]]] = {}
    if items:
        rows = db.execute(
            "SELECT item, device.name, state, ended FROM delivery JOIN device"
            f" ON device.id = delivery.device WHERE item IN ({marks(items)}) ORDER BY device.id",
            *items,
        )
        for item, name, state, ended in rows:
            told = {"device": name, "state": STATES[state], "ended": ended and float(ended)}
            found.setdefault(item, []).append(told)
    return found


def timeline(db: Db, id_: int) -> list[dict[str, Any]]:
    """Return what happened to an SOS, oldest first, as the API has it."""
    return [_event(*row) for row in db.execute(_EVENT + "sos = ? ORDER BY sos_event.id", id_)]


def event_of(db: Db, number: int) -> dict[str, Any]:
    """Return one event of the desk as the API has it. Raises ValueError for an unknown number."""
    (row,) = db.execute(_EVENT + "sos_event.id = ?", number)
    return _event(*row)


def _event(at: float, event: str, member: int | None, name: str, detail: str) -> dict[str, Any]:
    id_ = None if member is None else str(member)
    by = {"id": id_, "name": name} if member is not None or name else None
    return {"at": float(at), "event": event, "by": by, "detail": detail}
