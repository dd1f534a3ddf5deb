"""Every SOS of a device, from the moment at which it is raised until somebody closes it.

`open` becomes `acknowledged` and `closed`, or `closed` at once; nothing leads back. Each step is an
event of its timeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from fieldagent.hub.store.contract import Db

EVENTS = "events"
"""What is announced when something happened to one, or an item came."""


class SosState(StrEnum):
    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    CLOSED = "closed"


class Sos(NamedTuple):
    """A row; members by their numbers."""

    id: int
    workspace: int
    device: int
    item: int | None
    kind: str
    state: str
    raised: float
    acknowledged: float | None
    acknowledged_by: int | None
    closed: float | None


_SOS = (
    "SELECT id, workspace, device, item, kind, state, raised, acknowledged, acknowledged_by, closed"
    " FROM sos WHERE "
)


def raise_of(
    db: Db, workspace: int, device: int, item: int, now: float, *, kind: str = "sos"
) -> int:
    """The item is an SOS of that device, or tells that it is overdue."""
    ((sos,),) = db.execute(
        "INSERT INTO sos (workspace, device, item, kind, state, raised)"
        " VALUES (?, ?, ?, ?, 'open', ?) RETURNING id",
        workspace,
        device,
        item,
        kind,
        now,
    )
    note_event(db, sos, "raised", now)
    return int(sos)


def note_event(
    db: Db, sos: int, event: str, now: float, *, member: int | None = None, detail: str = ""
) -> None:
    db.execute(
        "INSERT INTO sos_event (sos, at, event, member, detail) VALUES (?, ?, ?, ?, ?)",
        sos,
        now,
        event,
        member,
        detail,
    )
    db.announce(EVENTS)


def note_stored(db: Db, item: int, member: int, now: float) -> None:
    """Write down that the agent of this member has it."""
    for found in of_item(db, item):
        note_event(db, found.id, "agent", now, member=member)


def note_called_off(db: Db, device: int, member: int, now: float) -> None:
    """Who raised what is not closed yet says that it is over. Whether that is so, a person finds
    out: it may have been said under duress, or by another who has the kit."""
    still = "SELECT id FROM sos WHERE device = ? AND kind = 'sos' AND closed IS NULL"
    for (id_,) in db.execute(still, device):
        note_event(db, id_, "called off", now, member=member)


def called_off(db: Db, id_: int) -> float | None:
    """When, for the last time."""
    ((at,),) = db.execute(
        "SELECT max(at) FROM sos_event WHERE sos = ? AND event = 'called off'", id_
    )
    return None if at is None else float(at)


def of_item(db: Db, item: int) -> list[Sos]:
    """The SOS that this item raised; empty where it raised none."""
    return [Sos(*row) for row in db.execute(_SOS + "item = ?", item)]


def named(db: Db, workspace: int, id_: int, *, locked: bool = False) -> Sos | None:
    """`locked`: nobody else changes it meanwhile."""
    sql = _SOS + "id = ? AND workspace = ?" + (db.for_update if locked else "")
    rows = db.execute(sql, id_, workspace)
    return Sos(*rows[0]) if rows else None


def of_event(db: Db, number: int) -> Sos | None:
    """The one whose timeline has it."""
    rows = db.execute(_SOS + "id = (SELECT sos FROM sos_event WHERE id = ?)", number)
    return Sos(*rows[0]) if rows else None


def listing(db: Db, workspace: int, state: str | None, before: int, limit: int) -> Sequence[Sos]:
    """The last first."""
    which = "" if state is None else " AND state = ?"
    rows = db.execute(
        f"{_SOS}workspace = ?{which} AND id < ? ORDER BY id DESC LIMIT ?",
        workspace,
        *(() if state is None else (state,)),
        before,
        limit,
    )
    return [Sos(*row) for row in rows]


def events_behind(db: Db, workspace: int, place: int, limit: int) -> list[tuple[int, float]]:
    """Numbers and dates of what happened next."""
    rows = db.execute(
        "SELECT sos_event.id, at FROM sos_event JOIN sos ON sos.id = sos_event.sos"
        " WHERE sos_event.id > ? AND workspace = ? ORDER BY sos_event.id LIMIT ?",
        place,
        workspace,
        limit,
    )
    return [(number, float(at)) for number, at in rows]


def set_acknowledged(db: Db, sos: int, member: int, now: float) -> None:
    db.execute(
        "UPDATE sos SET state = 'acknowledged', acknowledged = ?, acknowledged_by = ? WHERE id = ?",
        now,
        member,
        sos,
    )


def set_closed(db: Db, sos: int, now: float) -> None:
    db.execute("UPDATE sos SET state = 'closed', closed = ? WHERE id = ?", now, sos)
