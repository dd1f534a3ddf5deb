"""Audit log of pushes and administration, in the order of events.

A line belongs to a workspace, or to the whole hub. An example of a line about the whole hub is a
restored database. The log never contains secrets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fieldagent.hub.contract import parse_id
from fieldagent.hub.store.contract import Db, insert, make_marks
from fieldagent.system.lazy_named_tuple import NamedTuple

ADMINISTRATION = "administration"
"""Actor: a user of `fieldagent hub` on the hub's own machine."""
HUB = "hub"
"""Actor: the hub itself."""
CONTACT = "contact"
"""Actor: a contact who was notified of an SOS and opened the link in the notification."""

PUSH = "push"


class AuditLine(NamedTuple):
    workspace: int | None
    actor: str
    """Id of a member, or one of the constants above."""
    action: str
    detail: str


def write_line(
    db: Db, workspace: int | None, actor: str, action: str, detail: str, now: float
) -> None:
    """Write one audit line. `workspace` is None if the line is about the whole hub."""
    write_lines(db, [AuditLine(workspace, actor, action, detail)], now)


def write_lines(db: Db, lines: Sequence[AuditLine], now: float) -> None:
    """Write audit lines, all with the Unix time `now`."""
    columns = ("at", "workspace", "actor", "action", "detail")
    insert(db, "audit", columns, [(now, *line) for line in lines])


def list_latest(db: Db, limit: int, workspace: int | None = None) -> list[dict[str, Any]]:
    """Return the newest lines of one workspace, or of all workspaces and the hub itself if
    `workspace` is None.
    """
    condition, workspace_values = (
        ("", ()) if workspace is None else (" WHERE workspace = ?", (workspace,))
    )
    names = ("at", "workspace", "actor", "action", "detail")
    rows = db.execute(
        f"SELECT {', '.join(names)} FROM audit{condition} ORDER BY id DESC LIMIT ?",
        *workspace_values,
        limit,
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


def list_page(
    db: Db, workspace: int, before: int, limit: int
) -> tuple[list[dict[str, Any]], int | None]:
    """Return a page of lines, newest first, and the id from which the next page continues. Pushes
    are not included, because they are frequent and have their own list.
    """
    rows = db.execute(
        "SELECT id, at, actor, action, detail FROM audit WHERE workspace = ? AND id < ?"
        f" AND action <> '{PUSH}' ORDER BY id DESC LIMIT ?",
        workspace,
        before,
        limit + 1,
    )
    names = _read_names(db, {number for _, _, actor, _, _ in rows if (number := parse_id(actor))})
    lines = [
        {
            "id": id_,
            "at": float(at),
            "by": _read_author(actor, names),
            "action": action,
            "detail": detail,
        }
        for id_, at, actor, action, detail in rows[:limit]
    ]
    return lines, rows[limit - 1][0] if len(rows) > limit else None


def _read_names(db: Db, members: set[int]) -> dict[int, str]:
    rows = db.execute(
        f"SELECT id, name FROM member WHERE id IN ({make_marks(members) or 'NULL'})", *members
    )
    return dict(rows)


def _read_author(actor: str, names: dict[int, str]) -> dict[str, str]:
    number = parse_id(actor)
    if number is None:
        return {"kind": actor if actor in (HUB, CONTACT) else "shell"}
    return {"kind": "user", "id": actor, "name": names.get(number, "")}


DELETED_PER_CALL = 1_000


def delete_old_lines(db: Db, *, before: float) -> int:
    """Delete some lines older than `before` and return their number. Repeat the call until the
    number is 0.
    """
    # Ids increase with the dates, so a search of the oldest ids is enough, even in a large table.
    return len(
        db.execute(
            "DELETE FROM audit WHERE id IN (SELECT id FROM (SELECT id, at FROM audit ORDER BY id"
            " LIMIT ?) AS oldest WHERE at < ?) RETURNING id",
            DELETED_PER_CALL,
            before,
        )
    )
