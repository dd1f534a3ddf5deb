"""Every SOS of a device, from the moment at which it is raised until somebody closes it.

`open` becomes `acknowledged` and `closed`, or `closed` at once; nothing leads back. Each step is an
event of its timeline.
"""

from __future__ import annotations

from fieldagent.hub.store.contract import Db

STATES = ("open", "acknowledged", "closed")


def raise_of(db: Db, workspace: int, device: int, item: int, now: float) -> None:
    """The item is an SOS of that device."""
    ((sos,),) = db.execute(
        "INSERT INTO sos (workspace, device, item, kind, state, raised)"
        " VALUES (?, ?, ?, 'sos', 'open', ?) RETURNING id",
        workspace,
        device,
        item,
        now,
    )
    note_event(db, sos, "raised", now)
    db.announce(TOPIC)


TOPIC = "sos"
"""What is announced when something happened to one."""


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
