"""Sets and reads the quiet hours of a workspace and of its contacts (`hub.records.quiet`)."""

from __future__ import annotations

from fieldagent.hub.records import audit
from fieldagent.hub.records.audit import ADMINISTRATION
from fieldagent.hub.store.contract import Db


def set_workspace_hours(
    db: Db, workspace: int, hours: str, now: float, *, actor: str = ADMINISTRATION
) -> None:
    """Set the quiet hours of a workspace, which apply to all contacts without their own quiet
    hours. An empty text removes the hours.
    """
    db.execute("UPDATE workspace SET quiet = ? WHERE id = ?", hours, workspace)
    audit.write_line(db, workspace, actor, "quiet hours", hours or "none", now)


def set_contact_hours(
    db: Db, workspace: int, contact: int, hours: str, now: float, *, actor: str = ADMINISTRATION
) -> None:
    """Set the quiet hours of a contact. `NO_QUIET_HOURS`: the contact has none. An empty text: the
    hours of the workspace apply.
    """
    db.execute("UPDATE alarm_contact SET quiet = ? WHERE id = ?", hours, contact)
    detail = f"contact {contact}: {hours or 'as the workspace'}"
    audit.write_line(db, workspace, actor, "quiet hours", detail, now)


def read_workspace_hours(db: Db, workspace: int) -> str:
    """Return the quiet hours of a workspace, or an empty text if it has none."""
    ((hours,),) = db.execute("SELECT quiet FROM workspace WHERE id = ?", workspace)
    return str(hours)
