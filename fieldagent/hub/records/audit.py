"""Who did what: pushes and administration, in the order in which it happened.

A line belongs to the workspace that it is of; what is of none, such as a restored database, is for
whoever runs the hub. Secrets never come here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fieldagent.hub.contract import number_of
from fieldagent.hub.store.contract import Db, insert, marks
from fieldagent.system.lazy_named_tuple import NamedTuple

ADMINISTRATION = "administration"
"""Who does it at the hub's own machine, by `fieldagent hub`."""
HUB = "hub"
"""The hub does it by itself."""
CONTACT = "contact"
"""Somebody who was told of an SOS does it by the link in what told them."""

PUSH = "push"


class AuditLine(NamedTuple):
    workspace: int | None
    actor: str
    """A member's number, or one of the words above."""
    action: str
    detail: str


def note(db: Db, workspace: int | None, actor: str, action: str, detail: str, now: float) -> None:
    """Write one line of the audit; `workspace` is None for what is of the whole hub."""
    note_all(db, [AuditLine(workspace, actor, action, detail)], now)


def note_all(db: Db, lines: Sequence[AuditLine], now: float) -> None:
    """Write lines of the audit, all with this Unix time."""
    columns = ("at", "workspace", "actor", "action", "detail")
    insert(db, "audit", columns, [(now, *line) for line in lines])


def latest(db: Db, limit: int, workspace: int | None = None) -> list[dict[str, Any]]:
    """Return the newest lines of the one workspace, or of all and of none."""
    which, of = ("", ()) if workspace is None else (" WHERE workspace = ?", (workspace,))
    names = ("at", "workspace", "actor", "action", "detail")
    rows = db.execute(
        f"SELECT {', '.join(names)} FROM audit{which} ORDER BY id DESC LIMIT ?", *of, limit
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


def listing(
    db: Db, workspace: int, before: int, limit: int
) -> tuple[list[dict[str, Any]], int | None]:
    """List the lines, the newest first; without pushes, of which there are many, and which have a
    list of their own."""
    rows = db.execute(
        "SELECT id, at, actor, action, detail FROM audit WHERE workspace = ? AND id < ?"
        f" AND action <> '{PUSH}' ORDER BY id DESC LIMIT ?",
        workspace,
        before,
        limit + 1,
    )
    names = _names(db, {number for _, _, actor, _, _ in rows if (number := number_of(actor))})
    lines = [
        {"id": id_, "at": float(at), "by": _by(actor, names), "action": action, "detail": detail}
        for id_, at, actor, action, detail in rows[:limit]
    ]
    return lines, rows[limit - 1][0] if len(rows) > limit else None


def _names(db: Db, members: set[int]) -> dict[int, str]:
    rows = db.execute(
        f"SELECT id, name FROM member WHERE id IN ({marks(members) or 'NULL'})", *members
    )
    return dict(rows)


def _by(actor: str, names: dict[int, str]) -> dict[str, str]:
    number = number_of(actor)
    if number is None:
        return {"kind": actor if actor in (HUB, CONTACT) else "shell"}
    return {"kind": "user", "id": actor, "name": names.get(number, "")}


FORGOTTEN_AT_ONCE = 1_000


def forget(db: Db, *, before: float) -> int:
    """Drop some lines of before then; how many. More may be there while it is not 0."""
    # Their numbers are in the order of their dates: the oldest are looked at, whatever there is.
    return len(
        db.execute(
            "DELETE FROM audit WHERE id IN (SELECT id FROM (SELECT id, at FROM audit ORDER BY id"
            " LIMIT ?) AS oldest WHERE at < ?) RETURNING id",
            FORGOTTEN_AT_ONCE,
            before,
        )
    )
