"""Export of the hub's data about a user or a workspace. Rows are exported as JSON, data items as
their bytes.

The export contains no secrets. About other people, it contains only the items that they exchanged
with the subject.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fieldagent.hub.access import credentials, directory, people
from fieldagent.hub.access.subject import Subject, list_devices
from fieldagent.hub.api import reading, sos_desk
from fieldagent.hub.field import dead_letters
from fieldagent.hub.part import list_hub_parts
from fieldagent.hub.records import audit, sos, workspace_log
from fieldagent.hub.store.contract import Db
from fieldagent.hub.webhook import webhook_directory
from fieldagent.package.package import Data
from fieldagent.system.lazy_named_tuple import NamedTuple

ITEMS_PER_READ = 200
"""Largest number of items that one transaction reads."""
AUDIT_MAX = 1_000_000
"""Largest number of audit lines. The export contains the newest."""

Row = dict[str, Any]


class Listing(Protocol):
    def __call__(self, db: Db, subject: Subject, now: float) -> Sequence[Row]: ...


class ExportedItem(NamedTuple):
    row: Row
    data: bytes | None
    """Payload of a data item; None for any other item."""


def list_item_numbers(db: Db, subject: Subject, after: int) -> tuple[list[int], int | None]:
    """Examine the next items after the id `after`. Return those of the subject, and the last id
    that was examined, or None if there are no more items.
    """
    passed_numbers = [
        number
        for (number,) in db.execute(
            "SELECT id FROM item WHERE id > ? ORDER BY id LIMIT ?", after, ITEMS_PER_READ
        )
    ]
    if not passed_numbers:
        return [], None
    condition, parameters = subject.items
    rows = db.execute(
        f"SELECT id FROM item WHERE id > ? AND id <= ? AND {condition} ORDER BY id",
        after,
        passed_numbers[-1],
        *parameters,
    )
    return [number for (number,) in rows], passed_numbers[-1]


def count_items(db: Db, subject: Subject) -> int:
    """Return the number of items that an export of the subject contains."""
    condition, parameters = subject.items
    ((count,),) = db.execute(f"SELECT count(*) FROM item WHERE {condition}", *parameters)
    return int(count)


def list_items(db: Db, numbers: Sequence[int], now: float) -> list[ExportedItem]:
    """Return the items with their deliveries, oldest first."""
    entries = []
    for item in reversed(reading.list_items(db, numbers)):
        row = {
            **item.encode(),
            "deliveries": _list_deliveries(db, item.number, now),
            "webhooks": reading.list_webhook_deliveries(db, item.number),
        }
        data = None
        if isinstance(item.item, Data):
            data = item.item.payload
            del row["event"]["payload"]
            row["event"]["file"] = f"data/{item.request_id}"
        entries.append(ExportedItem(row, data))
    return entries


def _list_deliveries(db: Db, item: int, now: float) -> list[Row]:
    rows = db.execute(
        "SELECT device.id, device.name, state, way, ended, reason FROM delivery JOIN device"
        " ON device.id = delivery.device WHERE item = ?",
        item,
    )
    for each in workspace_log.list_awaiting(db, item, now):
        rows.append((each.device, each.name, each.state, None, each.ended, each.reason))
    names = ("device", "state", "over", "ended", "reason")
    return [dict(zip(names, row, strict=True)) for _number, *row in sorted(rows)]


def _select_workspaces(subject: Subject) -> str:
    if subject.kind == "workspace":
        return str(subject.id)
    return f"SELECT workspace FROM membership WHERE member = {subject.id}"


def _list_users(db: Db, subject: Subject, now: float) -> list[Row]:
    rows = []
    for (workspace,) in db.execute(
        f"SELECT id FROM workspace WHERE id IN ({_select_workspaces(subject)})"
    ):
        for row in directory.list_users(db, workspace):
            if subject.kind == "workspace" or row["id"] == subject.id:
                rows.append({"workspace": workspace, **row})
    return rows


def _list_devices(db: Db, subject: Subject, now: float) -> list[Row]:
    own = list_devices(db, subject)
    workspaces = f"SELECT DISTINCT workspace FROM device WHERE id IN ({subject.devices})"
    return [
        row
        for (workspace,) in db.execute(workspaces)
        for row in directory.list_devices(db, workspace, now)
        if row["id"] in own
    ]


def _list_sos(db: Db, subject: Subject, now: float) -> list[Row]:
    return [each for each in _list_incidents(db, subject) if each["kind"] == sos.SOS]


def _list_alarms(db: Db, subject: Subject, now: float) -> list[Row]:
    return [each for each in _list_incidents(db, subject) if each["kind"] != sos.SOS]


def _list_incidents(db: Db, subject: Subject) -> list[Row]:
    rows = db.execute(
        f"SELECT id, workspace FROM sos WHERE device IN ({subject.devices}) ORDER BY id"
    )
    incidents = [sos.find_incident(db, workspace, id_) for id_, workspace in rows]
    return [
        {**sos_desk.describe_sos(db, each), "timeline": sos_desk.list_timeline(db, each.id)}
        for each in incidents
        if each is not None
    ]


def _list_dead_letters(db: Db, subject: Subject, now: float) -> list[Row]:
    return dead_letters.list_letters(db, list_devices(db, subject))


def _audit(db: Db, subject: Subject, now: float) -> list[Row]:
    """Return the audit lines about the subject's own actions."""
    rows = db.execute(
        "SELECT at, action, detail FROM audit WHERE actor = ? ORDER BY id", str(subject.id)
    )
    return [dict(zip(("at", "action", "detail"), row, strict=True)) for row in rows]


def _audit_of(db: Db, subject: Subject, now: float) -> list[Row]:
    """Return all audit lines of the workspace, newest first. Lines about pushes are included."""
    return audit.list_latest(db, AUDIT_MAX, subject.id)


def _make_credential_list(kind: str) -> Listing:
    return lambda db, subject, now: credentials.list_credentials(db, kind, subject.id)


def _list_webhooks(db: Db, subject: Subject, now: float) -> list[Row]:
    return webhook_directory.list_webhooks(db, subject.id)


def _list_passkeys(db: Db, subject: Subject, now: float) -> list[Row]:
    """Return the owner and the times of use of each passkey. The keys are not included."""
    members = f"SELECT member FROM membership WHERE workspace = {subject.id}"
    owners = members if subject.kind == "workspace" else str(subject.id)
    rows = db.execute(
        f"SELECT member, name, created, used FROM passkey WHERE member IN ({owners}) ORDER BY id"
    )
    return [dict(zip(("user", "name", "created", "used"), row, strict=True)) for row in rows]


def _list_groups(db: Db, subject: Subject, now: float) -> list[Row]:
    return people.list_groups(db, subject.id)


def _list_radios(db: Db, subject: Subject, now: float) -> list[Row]:
    """Return the ids of people's handheld radios."""
    column = "workspace" if subject.kind == "workspace" else "member"
    rows = db.execute(
        f"SELECT workspace, member, handle FROM handle WHERE {column} = ? ORDER BY handle",
        subject.id,
    )
    return [dict(zip(("workspace", "user", "radio"), row, strict=True)) for row in rows]


OF_BOTH: dict[str, Listing] = {
    "radios": _list_radios,
    "users": _list_users,
    "passkeys": _list_passkeys,
    "devices": _list_devices,
    "sos": _list_sos,
    "alarms": _list_alarms,
    "dead-letters": _list_dead_letters,
}
LISTINGS: dict[str, dict[str, Listing]] = {
    "user": {**OF_BOTH, "audit": _audit},
    "workspace": {
        **OF_BOTH,
        "keys": _make_credential_list("key"),
        "tokens": _make_credential_list("token"),
        "webhooks": _list_webhooks,
        "groups": _list_groups,
        "audit": _audit_of,
    },
}
"""Functions of the core that return the rows of an exported file, by kind of subject and then by
name of the file."""


def select_listings(kind: str) -> dict[str, Listing]:
    """Return the functions for the exported files of a kind of subject, by name of the file.
    Includes those of all extensions.
    """
    if kind != "workspace":
        return LISTINGS[kind]
    own = {name: rows for part in list_hub_parts() for name, rows in part.exports.items()}
    return LISTINGS[kind] | {name: _make_workspace_listing(rows) for name, rows in own.items()}


def _make_workspace_listing(rows: Callable[[Db, int], list[Row]]) -> Listing:
    return lambda db, subject, now: rows(db, subject.id)
