"""End of the shift of a dispatcher who may no longer answer an SOS. An extension manages all other
shifts.
"""

from __future__ import annotations

from fieldagent.hub.records import audit, sos
from fieldagent.hub.records.alarm import MAY_ANSWER
from fieldagent.hub.store.contract import Db

IS_ON_WATCH = "ended IS NULL AND until > ?"
"""SQL condition on a shift: the dispatcher is on watch at the Unix time of the parameter."""


def end_member_shifts(db: Db, member: int, now: float) -> None:
    """End the shifts of a member in each workspace in which the member may no longer answer an
    SOS.
    """
    for (workspace,) in db.execute(
        f"UPDATE shift SET ended = ? WHERE member = ? AND {IS_ON_WATCH}"
        f" AND NOT {MAY_ANSWER.format('shift')} RETURNING workspace",
        *(now, member, now),
    ):
        audit.write_line(
            db, workspace, audit.HUB, "watch end", f"{member} can no longer answer an SOS", now
        )
        announce_check(db, workspace)


def announce_check(db: Db, workspace: int) -> None:
    """Make the check of a workspace's watch due now."""
    db.execute("UPDATE watch_hours SET due = 0 WHERE workspace = ?", workspace)
    db.announce(sos.EVENTS)
