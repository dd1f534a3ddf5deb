"""A user, a device or a workspace is deleted for good: what goes, what stays, and in which order.

1. `begin` takes it out of use: its links end, its credentials count no more.
2. `delete_items` and `empty_device` take away what there may be much of, some at a time: a hub that
   runs goes on between. Who is stopped here begins again, and loses nothing by it.
3. `end` takes away the rest. Kits that know a user by name are told to forget it, with the next
   message that goes to them anyway.

What others hold stays with them: `plan` says what that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fieldagent.hub import directory
from fieldagent.hub.audit import note
from fieldagent.hub.directory import ADMINISTRATION, Refused
from fieldagent.hub.envelope_packing import forget_name
from fieldagent.hub.store.contract import Db

AT_ONCE = 500
"""Rows of a table in one transaction."""

COPIES = "copies of the database, exports and logs: they are yours to find"
GIVEN = "what kits and webhooks were given: it is theirs"


@dataclass(frozen=True, slots=True)
class Doomed:
    """What is to be deleted: `kind` is user, device or workspace."""

    kind: str
    id: int
    name: str

    @property
    def items(self) -> tuple[str, Sequence[Any]]:
        """The condition of those that go with it."""
        if self.kind == "user":
            return "(sender = ? OR target = ?)", (self.id, self.id)
        return "workspace = ?", (self.id,)

    @property
    def devices(self) -> str:
        column = {"user": "member", "device": "id", "workspace": "workspace"}[self.kind]
        return f"SELECT id FROM device WHERE {column} = {self.id}"


def find(db: Db, kind: str, workspace: str, named: str) -> Doomed:
    """By its number or name. Raises Refused."""
    if kind == "workspace":
        id_, table = directory.workspace_of(db, named), "workspace"
    elif kind == "device":
        id_ = directory.device_named(db, directory.workspace_of(db, workspace), named)
        table = "device"
    else:
        id_ = directory.member_of(db, directory.workspace_of(db, workspace), named)
        table = "member"
    ((name,),) = db.execute(f"SELECT name FROM {table} WHERE id = ?", id_)
    return Doomed(kind, id_, name)


def plan(db: Db, doomed: Doomed) -> dict[str, Any]:
    """What goes, and what stays. Raises Refused while there is an SOS to be answered."""
    unanswered = db.execute(
        f"SELECT id FROM sos WHERE state <> 'closed' AND device IN ({doomed.devices}) ORDER BY id"
    )
    if unanswered:
        numbers = ", ".join(str(number) for (number,) in unanswered)
        raise Refused(
            f"SOS {numbers} of {doomed.kind} {doomed.name} is not closed: `fieldagent hub sos"
            f" close {unanswered[0][0]} REASON` first"
        )
    goes = {"devices": _names(db, f"SELECT name FROM device WHERE id IN ({doomed.devices})")}
    if doomed.kind == "workspace":
        goes["users"] = _names(
            db, f"SELECT name FROM member WHERE id IN ({_ALONE})", doomed.id, doomed.id
        )
    where, parameters = doomed.items
    stays = [GIVEN, COPIES, "lines of the audit, by number, for keep-audit-days"]
    told: dict[str, Any] = {"id": doomed.id, "name": doomed.name, "deletes": goes}
    if doomed.kind == "device":
        stays.insert(0, "the items that it sent: they are its user's")
    else:
        told["items"] = _count(db, f"SELECT count(*) FROM item WHERE {where}", *parameters)
    if doomed.kind == "user":
        told["workspaces"] = _names(
            db,
            "SELECT name FROM workspace WHERE id IN"
            " (SELECT workspace FROM membership WHERE member = ?)",
            doomed.id,
        )
        stays.insert(0, "their number in the timelines of others' SOS")
    told["sos"] = _count(db, f"SELECT count(*) FROM sos WHERE device IN ({doomed.devices})")
    return {**told, "stays": stays}


def _names(db: Db, sql: str, *parameters: Any) -> list[str]:
    return [str(name) for (name,) in db.execute(f"{sql} ORDER BY id", *parameters)]


def _count(db: Db, sql: str, *parameters: Any) -> int:
    return int(db.execute(sql, *parameters)[0][0])


def begin(db: Db, doomed: Doomed, now: float) -> bool:
    """Take it out of use; whether some hub has a link of it, which ends in a moment."""
    linked = bool(db.execute(f"SELECT 1 FROM lease WHERE device IN ({doomed.devices}) LIMIT 1"))
    if doomed.kind == "user":
        directory.set_disabled(db, "member", doomed.id, now, now=now)
        return linked
    for (device,) in db.execute(doomed.devices):
        directory.set_disabled(db, "device", device, now, now=now)
    if doomed.kind == "workspace":
        db.execute("DELETE FROM credential WHERE workspace = ?", doomed.id)
        db.execute("DELETE FROM session WHERE workspace = ?", doomed.id)
        db.execute("UPDATE webhook SET disabled = ? WHERE workspace = ?", now, doomed.id)
    return linked


def delete_items(db: Db, doomed: Doomed, after: int) -> int | None:
    """Of the next items behind that number those that go; the last that was looked at."""
    if doomed.kind == "device":
        return None
    ((last,),) = db.execute(
        "SELECT max(id) FROM (SELECT id FROM item WHERE id > ? ORDER BY id LIMIT ?) AS looked",
        after,
        AT_ONCE,
    )
    if last is None:
        return None
    where, parameters = doomed.items
    db.execute(f"DELETE FROM item WHERE id > ? AND id <= ? AND {where}", after, last, *parameters)
    return int(last)


_OF_A_DEVICE = {
    "delivery": "item",
    "arrived": "origin, sequence, digest",
    "receipt": "id",
    "slice": "origin, sequence, count, position",
    "mobile_terminated": "id",
    "dead_letter": "id",
}
"""Tables of which a device may have many rows, with what else names a row."""


def devices(db: Db, doomed: Doomed) -> list[int]:
    return [device for (device,) in db.execute(doomed.devices)]


def empty_device(db: Db, device: int) -> int:
    """Take away some of what it has; how much. More may be there while it is not 0."""
    return sum(
        len(
            db.execute(
                f"DELETE FROM {table} WHERE device = ? AND ({names}) IN (SELECT {names}"
                f" FROM {table} WHERE device = ? LIMIT {AT_ONCE}) RETURNING device",
                device,
                device,
            )
        )
        for table, names in _OF_A_DEVICE.items()
    )


def end(db: Db, doomed: Doomed, now: float) -> None:
    """Take away the rest, and the names that the audit has."""
    gone = devices(db, doomed)
    users = [doomed.id] if doomed.kind == "user" else []
    if doomed.kind == "workspace":
        users = [member for (member,) in db.execute(_ALONE, doomed.id, doomed.id)]
    for device in gone:
        db.execute("DELETE FROM device WHERE id = ?", device)
        _leave_number(db, ("device add", "device imei"), device)
    for member in users:
        forget_name(db, member)
        db.execute("DELETE FROM member WHERE id = ?", member)
        _leave_number(db, ("user add",), member)
        db.execute(
            "UPDATE audit SET detail = ? WHERE action = 'token add' AND detail LIKE ?",
            f"of {member}",
            f"% of {member}",
        )
    if doomed.kind == "workspace":
        db.execute("DELETE FROM workspace WHERE id = ?", doomed.id)
        _leave_number(db, ("workspace add",), doomed.id)
    note(db, ADMINISTRATION, f"{doomed.kind} delete", str(doomed.id), now)


_ALONE = (
    "SELECT id FROM member WHERE id IN (SELECT member FROM membership WHERE workspace = ?)"
    " AND NOT EXISTS (SELECT 1 FROM workspace AS other WHERE other.id <> ? AND (EXISTS (SELECT 1"
    " FROM membership WHERE membership.workspace = other.id AND membership.member = member.id)"
    " OR EXISTS (SELECT 1 FROM device WHERE device.workspace = other.id"
    " AND device.member = member.id) OR EXISTS (SELECT 1 FROM item"
    " WHERE item.workspace = other.id AND item.sender = member.id)))"
)
"""Users who have nothing in any other workspace."""


def _leave_number(db: Db, actions: Sequence[str], id_: int) -> None:
    """Of the lines that tell a name, or an IMEI, only whose they are."""
    for action in actions:
        db.execute(
            "UPDATE audit SET detail = ? WHERE action = ? AND detail LIKE ?",
            str(id_),
            action,
            f"{id_} %",
        )
