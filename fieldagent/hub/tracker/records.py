"""Trackers as rows: which there are, and how each stands.

Each function is one operation for `Store.commit`, `read` or `once`. Raises Refused in words.
"""

from __future__ import annotations

from fieldagent.hub.access import directory, secret
from fieldagent.hub.access.directory import Refused, Row, named_rows
from fieldagent.hub.records.sos import SosState
from fieldagent.hub.store.contract import Db, insert
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import Rate

EVERY = 60
"""Seconds between two positions of one that people are told of, where nobody says otherwise."""
CALLS = Rate(per_minute=600, burst=600)
"""Reports by one address: a hundred trackers that tell theirs each ten seconds."""


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
    """Return the address that has this secret, if it is in force."""
    rows = db.execute(
        "SELECT id, workspace FROM credential WHERE kind = 'source' AND lookup = ?"
        " AND revoked IS NULL",
        secret.lookup(presented),
    )
    return ReportAddress(*rows[0]) if rows else None


def charge_call(db: Db, source: ReportAddress, now: float) -> float:
    """Count a call; return 0, or the seconds until there may be one."""
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
    """Add a tracker as a device of a member that nothing can be sent to; return its number."""
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
    """Return all of a workspace; times in Unix seconds, None where there was nothing yet."""
    return named_rows(
        db,
        "SELECT device, device.name, member.name, ident, every, alarm, CASE WHEN at > 0 THEN at END"
        " FROM tracker JOIN device ON device.id = device JOIN member ON member.id = device.member"
        " WHERE tracker.workspace = ? ORDER BY device",
        ("id", "name", "user", "tracker", "every", "alarm", "positionAt"),
        workspace,
    )


def find(db: Db, workspace: int, ident: str) -> Tracker | None:
    """Return the tracker that calls itself so, locked; None where nobody has added it."""
    rows = db.execute(
        "SELECT device, tracker.workspace, member, name, every, alarm, at, told FROM tracker"
        " JOIN device ON device.id = device WHERE tracker.workspace = ? AND ident = ?"
        " AND disabled IS NULL" + db.for_update("tracker"),
        workspace,
        ident,
    )
    return Tracker(*rows[0]) if rows else None


def note(db: Db, tracker: Tracker, *, alarm: str, at: float, told_at: float) -> None:
    """Write down how it stands after a report."""
    db.execute(
        "UPDATE tracker SET alarm = ?, at = ?, told = ? WHERE device = ?",
        *(alarm, at, told_at, tracker.device),
    )


def open_incident(db: Db, device: int) -> int | None:
    """Return the SOS of that device that nobody has closed."""
    rows = db.execute(
        "SELECT id FROM sos WHERE device = ? AND kind = ? AND state <> ? ORDER BY id DESC LIMIT 1",
        *(device, "sos", SosState.CLOSED),
    )
    return int(rows[0][0]) if rows else None
