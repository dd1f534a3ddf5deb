"""Who did what: pushes and administration, in the order in which it happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fieldagent.hub.store.contract import Db, insert


def note(db: Db, actor: str, action: str, detail: str, now: float) -> None:
    """`actor` is a member's number, or `administration`; secrets never come here."""
    note_all(db, [(actor, action, detail)], now)


def note_all(db: Db, lines: Sequence[tuple[str, str, str]], now: float) -> None:
    insert(db, "audit", ("at", "actor", "action", "detail"), [(now, *line) for line in lines])


def latest(db: Db, limit: int) -> list[dict[str, Any]]:
    rows = db.execute("SELECT at, actor, action, detail FROM audit ORDER BY id DESC LIMIT ?", limit)
    return [dict(zip(("at", "actor", "action", "detail"), row, strict=True)) for row in rows]


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
