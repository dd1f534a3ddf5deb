"""What a person does about an SOS: acknowledge it, write down what happens, close it.

Whoever acknowledges or closes one ends its repeats: its kit is told who it was.
"""

from __future__ import annotations

from typing import Any

from fieldagent.hub import ledger, reading, sos
from fieldagent.hub.audit import note
from fieldagent.hub.caller import ANSWERING
from fieldagent.hub.directory import Refused
from fieldagent.hub.sos import Sos, SosState
from fieldagent.hub.store.contract import Db

TEXT_MAX = 2_000
"""Characters of a note or reason."""


def acknowledge(db: Db, found: Sos, member: int, text: str, now: float) -> Sos:
    """Once more by the same person changes nothing. Raises Refused."""
    if found.state == SosState.ACKNOWLEDGED and found.acknowledged_by == member:
        return found
    if found.state != SosState.OPEN:
        raise Refused(_over(db, found))
    _answer(db, found, member, now)
    sos.note_event(db, found.id, "acknowledged", now, member=member, detail=text)
    note(db, found.workspace, str(member), "sos acknowledge", str(found.id), now)
    return _again(db, found)


def close(db: Db, found: Sos, member: int, reason: str, now: float) -> Sos:
    """Raises Refused where it is closed already."""
    if found.state == SosState.CLOSED:
        raise Refused(_over(db, found))
    if found.state == SosState.OPEN:
        _answer(db, found, member, now)
    sos.set_closed(db, found.id, now)
    sos.note_event(db, found.id, "closed", now, member=member, detail=reason)
    note(db, found.workspace, str(member), "sos close", str(found.id), now)
    return _again(db, found)


def write_down(db: Db, found: Sos, member: int, text: str, now: float) -> Sos:
    """Also of one that is closed."""
    sos.note_event(db, found.id, "note", now, member=member, detail=text)
    return found


def _answer(db: Db, found: Sos, member: int, now: float) -> None:
    sos.set_acknowledged(db, found.id, member, now)
    if found.item is not None:
        ledger.acknowledge(db, found.item, member, now)
        ledger.end_escalation(db, found.item)


def _again(db: Db, found: Sos) -> Sos:
    changed = sos.named(db, found.workspace, found.id)
    assert changed is not None, "nothing removes one meanwhile"
    return changed


def _over(db: Db, found: Sos) -> str:
    if found.state == SosState.CLOSED:
        return f"SOS {found.id} is closed"
    return f"{_name(db, found.acknowledged_by)} has acknowledged SOS {found.id} already"


def dispatchers(db: Db, workspace: int) -> list[int]:
    """Who may acknowledge one."""
    rows = db.execute(
        "SELECT member.id FROM member JOIN membership ON membership.member = member.id"
        " WHERE membership.workspace = ? AND role IN (?, ?) AND type = 'User' AND disabled IS NULL"
        " ORDER BY member.id",
        workspace,
        *ANSWERING,
    )
    return [member for (member,) in rows]


def note_posted(db: Db, item: int, webhook: str, confirmed_by: str | None, now: float) -> str:
    """A webhook has taken an item; where it is an SOS, its sender may count that as an answer. What
    people should know of it, or nothing.

    `confirmed_by` is the setting: None is a person where somebody is a dispatcher.
    """
    for found in sos.of_item(db, item):
        sos.note_event(db, found.id, "webhook", now, detail=webhook)
        people = dispatchers(db, found.workspace)
        if confirmed_by == "webhook" or (confirmed_by is None and not people):
            ledger.confirm_sos(db, item, now)
        elif not people and found.kind == "sos":
            return (
                f"SOS {found.id} goes on until a person acknowledges it (sos-confirmed-by=person),"
                f" and no user of workspace {found.workspace} is a dispatcher: make somebody one"
                " with `fieldagent hub user role`, or acknowledge it with `fieldagent hub sos"
                f" acknowledge {found.id} --by USER`"
            )
    return ""


def _name(db: Db, member: int | None) -> str:
    rows = db.execute("SELECT name FROM member WHERE id = ?", member or 0)
    return str(rows[0][0]) if rows else f"user {member}"


def shown(db: Db, found: Sos) -> dict[str, Any]:
    """As a dispatcher is told of it, with what was sent, and where the device was last."""
    items = [] if found.item is None else reading.items(db, [found.item])
    ((name, latitude, longitude, at),) = db.execute(
        "SELECT name, latitude, longitude, position_at FROM device"
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
        "item": items[0].as_json() if items else None,
        "calledOff": sos.called_off(db, found.id),
        "position": {"latitude": latitude, "longitude": longitude, "at": at} if known else None,
        "acknowledged": None
        if found.acknowledged is None
        else {
            "at": float(found.acknowledged),
            "by": {
                "id": str(found.acknowledged_by),
                "name": _name(db, found.acknowledged_by),
            },
        },
        "closed": None if found.closed is None else float(found.closed),
    }


_EVENT = (
    "SELECT at, event, sos_event.member, member.name, detail FROM sos_event"
    " LEFT JOIN member ON member.id = sos_event.member WHERE "
)


def timeline(db: Db, id_: int) -> list[dict[str, Any]]:
    return [_event(*row) for row in db.execute(_EVENT + "sos = ? ORDER BY sos_event.id", id_)]


def event_of(db: Db, number: int) -> dict[str, Any]:
    (row,) = db.execute(_EVENT + "sos_event.id = ?", number)
    return _event(*row)


def _event(at: float, event: str, member: int | None, name: str, detail: str) -> dict[str, Any]:
    by = None if member is None else {"id": str(member), "name": name or ""}
    return {"at": float(at), "event": event, "by": by, "detail": detail}
