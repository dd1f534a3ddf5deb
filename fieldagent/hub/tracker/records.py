"""Trackers in the database, and their state.

Each function is one operation for `Store.commit`, `read` or `once`. Raises Refused with the reason.
"""

from __future__ import annotations

from fieldagent.hub.access import directory, secret
from fieldagent.hub.access.directory import Refused, Row, named_rows
from fieldagent.hub.records.sos import SosState
from fieldagent.hub.store.contract import Db, insert
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import Rate

EVERY = 60
"""Default seconds between two positions of a tracker that are sent to people."""
CALLS = Rate(per_minute=600, burst=600)
"""Rate of reports per address, enough for a hundred trackers that report every ten seconds."""


class ReportAddress(NamedTuple):
    """An address to which trackers report: a credential."""

    id: int
    workspace: int


class Tracker(NamedTuple):
    device: int
    workspace: int
    member: int
    name: str
    every: int
    alarm: str
    at: float
    told: float


def source_of(db: Db, presented: str) -> ReportAddress | None:
    """Return the valid address with this secret, or None."""
    rows = db.execute(
        "SELECT id, workspace FROM credential WHERE kind = 'source' AND lookup = ?"
        " AND revoked IS NULL",
        secret.lookup(presented),
    )
    return ReportAddress(*rows[0]) if rows else None


def charge_call(db: Db, source: ReportAddress, now: float) -> float:
    """Count a call. Return 0, or the seconds until the next call is allowed."""
    sql = f"SELECT tat FROM credential WHERE id = ?{db.for_update()}"
    ((tat,),) = db.execute(sql, source.id)
    tat, wait = CALLS.admit(tat, now)
    if not wait:
        db.execute("UPDATE credential SET tat = ? WHERE id = ?", tat, source.id)
    return wait


def add(
    db: Db,
    workspace: int,
    member: int,
    name: str,
    ident: str,
    *,
    every: int = EVERY,
    now: float,
) -> int:
    """Add a tracker as a device of a member that cannot get messages, and return its id."""
    known = db.execute(
        "SELECT device.name FROM tracker JOIN device ON device.id = device"
        " WHERE tracker.workspace = ? AND ident = ?",
        workspace,
        ident,
    )
    if known:
        raise Refused(f"the tracker {ident!r} is {known[0][0]!r} already in that workspace")
    device, _ = directory.add_device(db, workspace, member, directory.NewDevice(name), now=now)
    db.execute("UPDATE device SET link_token = NULL WHERE id = ?", device)
    columns = ("device", "workspace", "ident", "every")
    insert(db, "tracker", columns, [(device, workspace, ident, every)])
    return device


def listing(db: Db, workspace: int) -> list[Row]:
    """Return all trackers of a workspace. Times are Unix seconds, or None without a position."""
    return named_rows(
        db,
        "SELECT device, device.name, member.name, ident, every, alarm, CASE WHEN at > 0 THEN at END"
        " FROM tracker JOIN device ON device.id = device JOIN member ON member.id = device.member"
        " WHERE tracker.workspace = ? ORDER BY device",
        ("id", "name", "user", "tracker", "every", "alarm", "positionAt"),
        workspace,
    )


def find(db: Db, workspace: int, ident: str) -> Tracker | None:
    """Return the tracker with this id of its own, and lock it; None if it is unknown."""
    rows = db.execute(
        "SELECT device, tracker.workspace, member, name, every, alarm, at, told FROM tracker"
        " JOIN device ON device.id = device WHERE tracker.workspace = ? AND ident = ?"
        " AND disabled IS NULL" + db.for_update("tracker"),
        workspace,
        ident,
    )
    return Tracker(*rows[0]) if rows else None


def note(db: Db, tracker: Tracker, *, alarm: str, at: float, told_at: float) -> None:
    """Store the state of a tracker after a report."""
    db.execute(
        "UPDATE tracker SET alarm = ?, at = ?, told = ? WHERE device = ?",
        *(alarm, at, told_at, tracker.device),
    )


def open_incident(db: Db, device: int) -> int | None:
    """Return the id of the device's SOS that is not closed, or None."""
    rows = db.execute(
        "SELECT id FROM sos WHERE device = ? AND kind = ? AND state <> ? ORDER BY id DESC LIMIT 1",
        *(device, "sos", SosState.CLOSED),
    )
    return int(rows[0][0]) if rows else None
