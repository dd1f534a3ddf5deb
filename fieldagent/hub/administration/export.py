"""What the hub holds of a user or of a workspace, for them to take along: rows as JSON, and what
was sent as data as the bytes that it was. Nothing secret is in it, and nothing of others but what
they sent or were sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fieldagent.hub.access import credentials, directory, people
from fieldagent.hub.access.subject import Subject, devices_of
from fieldagent.hub.api import reading, sos_desk
from fieldagent.hub.escalation import contacts
from fieldagent.hub.field import dead_letters
from fieldagent.hub.places import fences, routes
from fieldagent.hub.records import audit, sos, workspace_log
from fieldagent.hub.store.contract import Db
from fieldagent.hub.webhook import webhook_directory
from fieldagent.package.package import Data
from fieldagent.system.lazy_named_tuple import NamedTuple

AT_ONCE = 200
"""Items read in one look."""
AUDIT_MAX = 1_000_000
"""Lines: the latest."""

Row = dict[str, Any]


class Listing(Protocol):
    def __call__(self, db: Db, subject: Subject, now: float) -> Sequence[Row]: ...


class ExportedItem(NamedTuple):
    row: Row
    data: bytes | None
    """What was sent as data."""


def item_numbers(db: Db, subject: Subject, after: int) -> tuple[list[int], int | None]:
    """Return, of the next items behind that number, those that are the subject's; and the last that
    was looked at, None where there was none."""
    passed = [
        number
        for (number,) in db.execute(
            "SELECT id FROM item WHERE id > ? ORDER BY id LIMIT ?", after, AT_ONCE
        )
    ]
    if not passed:
        return [], None
    where, parameters = subject.items
    rows = db.execute(
        f"SELECT id FROM item WHERE id > ? AND id <= ? AND {where} ORDER BY id",
        after,
        passed[-1],
        *parameters,
    )
    return [number for (number,) in rows], passed[-1]


def items(db: Db, numbers: Sequence[int], now: float) -> list[ExportedItem]:
    """Yield the items, the oldest first, each with what became of it."""
    entries = []
    for item in reversed(reading.items(db, numbers)):
        row = {
            **item.as_json(),
            "deliveries": _deliveries(db, item.number, now),
            "webhooks": reading.webhook_deliveries(db, item.number),
        }
        data = None
        if isinstance(item.item, Data):
            data = item.item.payload
            del row["event"]["payload"]
            row["event"]["file"] = f"data/{item.request_id}"
        entries.append(ExportedItem(row, data))
    return entries


def _deliveries(db: Db, item: int, now: float) -> list[Row]:
    rows = db.execute(
        "SELECT device.id, device.name, state, way, ended, reason FROM delivery JOIN device"
        " ON device.id = delivery.device WHERE item = ?",
        item,
    )
    for each in workspace_log.awaiting(db, item, now):
        rows.append((each.device, each.name, each.state, None, each.ended, each.reason))
    names = ("device", "state", "over", "ended", "reason")
    return [dict(zip(names, row, strict=True)) for _number, *row in sorted(rows)]


def _workspaces(subject: Subject) -> str:
    if subject.kind == "workspace":
        return str(subject.id)
    return f"SELECT workspace FROM membership WHERE member = {subject.id}"


def _users(db: Db, subject: Subject, now: float) -> list[Row]:
    rows = []
    for (workspace,) in db.execute(
        f"SELECT id FROM workspace WHERE id IN ({_workspaces(subject)})"
    ):
        for row in directory.users(db, workspace):
            if subject.kind == "workspace" or row["id"] == subject.id:
                rows.append({"workspace": workspace, **row})
    return rows


def _devices(db: Db, subject: Subject, now: float) -> list[Row]:
    own = devices_of(db, subject)
    workspaces = f"SELECT DISTINCT workspace FROM device WHERE id IN ({subject.devices})"
    return [
        row
        for (workspace,) in db.execute(workspaces)
        for row in directory.devices(db, workspace, now)
        if row["id"] in own
    ]


def _sos(db: Db, subject: Subject, now: float) -> list[Row]:
    rows = db.execute(
        f"SELECT id, workspace FROM sos WHERE device IN ({subject.devices}) ORDER BY id"
    )
    incidents = [sos.named(db, workspace, id_) for id_, workspace in rows]
    return [
        {**sos_desk.shown(db, each), "timeline": sos_desk.timeline(db, each.id)}
        for each in incidents
        if each is not None
    ]


def _dead_letters(db: Db, subject: Subject, now: float) -> list[Row]:
    return dead_letters.listing(db, devices_of(db, subject))


def _audit(db: Db, subject: Subject, now: float) -> list[Row]:
    """Return what they did themselves."""
    rows = db.execute(
        "SELECT at, action, detail FROM audit WHERE actor = ? ORDER BY id", str(subject.id)
    )
    return [dict(zip(("at", "action", "detail"), row, strict=True)) for row in rows]


def _audit_of(db: Db, subject: Subject, now: float) -> list[Row]:
    """All of the workspace, pushes too; the latest first."""
    return audit.latest(db, AUDIT_MAX, subject.id)


def _credentials(kind: str) -> Listing:
    return lambda db, subject, now: credentials.listing(db, kind, subject.id)


def _webhooks(db: Db, subject: Subject, now: float) -> list[Row]:
    return webhook_directory.listing(db, subject.id)


def _contacts(db: Db, subject: Subject, now: float) -> list[Row]:
    return contacts.listing(db, subject.id)


def _passkeys(db: Db, subject: Subject, now: float) -> list[Row]:
    """Whose they are and when they were used, without what they prove."""
    members = f"SELECT member FROM membership WHERE workspace = {subject.id}"
    whose = members if subject.kind == "workspace" else str(subject.id)
    rows = db.execute(
        f"SELECT member, name, created, used FROM passkey WHERE member IN ({whose}) ORDER BY id"
    )
    return [dict(zip(("user", "name", "created", "used"), row, strict=True)) for row in rows]


def _groups(db: Db, subject: Subject, now: float) -> list[Row]:
    return people.groups(db, subject.id)


def _fences(db: Db, subject: Subject, now: float) -> list[Row]:
    return fences.listing(db, subject.id)


def _routes(db: Db, subject: Subject, now: float) -> list[Row]:
    """Return those under way, and the newest that have ended."""
    return routes.listing(db, subject.id)


def _radios(db: Db, subject: Subject, now: float) -> list[Row]:
    """Return what people carry, by the ids on its own air."""
    column = "workspace" if subject.kind == "workspace" else "member"
    rows = db.execute(
        f"SELECT workspace, member, handle FROM handle WHERE {column} = ? ORDER BY handle",
        subject.id,
    )
    return [dict(zip(("workspace", "user", "radio"), row, strict=True)) for row in rows]


OF_BOTH: dict[str, Listing] = {
    "radios": _radios,
    "users": _users,
    "passkeys": _passkeys,
    "devices": _devices,
    "sos": _sos,
    "dead-letters": _dead_letters,
}
LISTINGS: dict[str, dict[str, Listing]] = {
    "user": {**OF_BOTH, "audit": _audit},
    "workspace": {
        **OF_BOTH,
        "keys": _credentials("key"),
        "tokens": _credentials("token"),
        "webhooks": _webhooks,
        "contacts": _contacts,
        "groups": _groups,
        "fences": _fences,
        "routes": _routes,
        "audit": _audit_of,
    },
}
"""By kind: what is listed at once, beside the items."""
