"""Subject of an export or a deletion: a user, device or workspace, with the rows that belong to
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fieldagent.hub.access import directory
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Subject:
    """A user, device or workspace. `kind` is "user", "device" or "workspace"."""

    kind: str
    id: int
    name: str

    @property
    def items(self) -> tuple[str, Sequence[Any]]:
        """Return the SQL condition for the subject's own items, with its parameters."""
        if self.kind == "user":
            return "(sender = ? OR target = ?)", (self.id, self.id)
        return "workspace = ?", (self.id,)

    @property
    def counted(self) -> list[tuple[str, Sequence[Any]]]:
        """Return SQL conditions, with parameters, that split the subject's own items into disjoint
        parts, so that each part can be counted with an index.
        """
        if self.kind == "user":
            sent = "sender = ? AND workspace IN (SELECT id FROM workspace)"
            return [(sent, (self.id,)), ("target = ? AND sender <> ?", (self.id, self.id))]
        return [self.items]

    @property
    def devices(self) -> str:
        """Return an SQL query for the ids of the subject's devices."""
        column = {"user": "member", "device": "id", "workspace": "workspace"}[self.kind]
        return f"SELECT id FROM device WHERE {column} = {self.id}"


def list_devices(db: Db, subject: Subject) -> list[int]:
    """Return the ids of the devices whose data belongs to the subject."""
    return [device for (device,) in db.execute(subject.devices)]


def list_workspaces(db: Db, subject: Subject) -> list[int | None]:
    """Return the workspaces whose audit logs record the deletion of the subject. If no such
    workspace is left, return [None], which stands for the whole hub.
    """
    sql = {
        "user": "SELECT workspace FROM membership WHERE member = ?",
        "device": "SELECT workspace FROM device WHERE id = ?",
    }.get(subject.kind)
    rows = db.execute(sql, subject.id) if sql else []
    return [workspace for (workspace,) in rows] or [None]


def find_subject(db: Db, kind: str, workspace: str, name_or_id: str) -> Subject:
    """Find a user, device or workspace by its id or name. Raises Refused if there is no such
    subject.
    """
    if kind == "workspace":
        id_, table = directory.find_workspace(db, name_or_id), "workspace"
    elif kind == "device":
        id_ = directory.find_device_named(db, directory.find_workspace(db, workspace), name_or_id)
        table = "device"
    else:
        id_ = directory.find_member(db, directory.find_workspace(db, workspace), name_or_id)
        table = "member"
    ((name,),) = db.execute(f"SELECT name FROM {table} WHERE id = ?", id_)
    return Subject(kind, id_, name)
