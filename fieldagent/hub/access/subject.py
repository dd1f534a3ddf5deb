"""Whom or what an operator names, and what of the ledger is theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fieldagent.hub.access import directory
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Subject:
    """`kind` is user, device or workspace."""

    kind: str
    id: int
    name: str

    @property
    def items(self) -> tuple[str, Sequence[Any]]:
        """Return the condition of those that are its own."""
        if self.kind == "user":
            return "(sender = ? OR target = ?)", (self.id, self.id)
        return "workspace = ?", (self.id,)

    @property
    def counted(self) -> list[tuple[str, Sequence[Any]]]:
        """Return the conditions of the same items in parts, each along an index; none is in two."""
        if self.kind == "user":
            sent = "sender = ? AND workspace IN (SELECT id FROM workspace)"
            return [(sent, (self.id,)), ("target = ? AND sender <> ?", (self.id, self.id))]
        return [self.items]

    @property
    def devices(self) -> str:
        """Return the SQL that finds the numbers of its devices."""
        column = {"user": "member", "device": "id", "workspace": "workspace"}[self.kind]
        return f"SELECT id FROM device WHERE {column} = {self.id}"


def devices_of(db: Db, subject: Subject) -> list[int]:
    """Return the numbers of the devices that belong to a subject."""
    return [device for (device,) in db.execute(subject.devices)]


def workspaces_of(db: Db, subject: Subject) -> list[int | None]:
    """Return those that its deletion is told in; a workspace's, in none that is left."""
    sql = {
        "user": "SELECT workspace FROM membership WHERE member = ?",
        "device": "SELECT workspace FROM device WHERE id = ?",
    }.get(subject.kind)
    rows = db.execute(sql, subject.id) if sql else []
    return [workspace for (workspace,) in rows] or [None]


def find(db: Db, kind: str, workspace: str, named: str) -> Subject:
    """Find a subject by its number or name. Raises Refused."""
    if kind == "workspace":
        id_, table = directory.workspace_of(db, named), "workspace"
    elif kind == "device":
        id_ = directory.device_named(db, directory.workspace_of(db, workspace), named)
        table = "device"
    else:
        id_ = directory.member_of(db, directory.workspace_of(db, workspace), named)
        table = "member"
    ((name,),) = db.execute(f"SELECT name FROM {table} WHERE id = ?", id_)
    return Subject(kind, id_, name)
