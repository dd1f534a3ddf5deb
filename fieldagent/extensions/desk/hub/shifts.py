"""Shifts at the desk: dispatchers on watch, handovers, and an alarm if no dispatcher is on watch.

A shift begins when a dispatcher takes the watch. A shift ends at the announced time. It ends
earlier if the dispatcher ends it, if the successor has taken the watch, or if the dispatcher may no
longer answer an SOS. Several dispatchers can be on watch at the same time. If a workspace has watch
hours, the hub raises an alarm when no dispatcher was on watch for five minutes of these hours.

Each function is one operation for `Store.commit`, `read` or `once`. Times are Unix seconds.
"""

from __future__ import annotations

from math import inf
from typing import Any

from fieldagent.hub.access.directory import Refused
from fieldagent.hub.api.sos_desk import list_dispatchers
from fieldagent.hub.records import audit, ledger, sos
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.records.quiet import is_among
from fieldagent.hub.records.shifts import IS_ON_WATCH, announce_check
from fieldagent.hub.store.contract import Db, find_earliest
from fieldagent.package.package import SOS_PRIORITY, Message
from fieldagent.package.writing import format_clock_time
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import sentence

ALARM_KIND = "watch"
"""Kind of the alarm that no dispatcher is on watch, in the table of incidents."""
ALARM_AFTER_S = 300.0
"""Seconds without a dispatcher on watch before the alarm."""
SHIFT_MAX_S = 7 * 86_400.0
"""Longest shift in seconds, so that a forgotten shift ends."""
ENDED_SHIFTS_MAX = 10
"""Largest number of ended shifts to show. The newest shifts are shown."""
_DAY, _MINUTE = 86_400.0, 60


class Hours(NamedTuple):
    """Watch hours in minutes of a UTC day. If the end is before the beginning, the hours span
    midnight. If both are equal, the hours are the whole day.
    """

    begins: int
    ends: int

    def __str__(self) -> str:
        if self.begins == self.ends:
            return "always"
        return " to ".join(f"{each // 60:02}:{each % 60:02}" for each in self) + " UTC"

    def is_within(self, now: float) -> bool:
        """Return True if the Unix time `now` is within the hours of its UTC day."""
        return is_among(self.begins, self.ends, now % _DAY / _MINUTE)

    def compute_next_change(self, now: float) -> float:
        """Return the next Unix time when the hours begin or end, or infinity if they never end."""
        if self.begins == self.ends:
            return inf
        today = now - now % _DAY
        return min(
            at
            for day in (today, today + _DAY)
            for minute in self
            if (at := day + minute * _MINUTE) > now
        )


def take_watch(db: Db, workspace: int, member: int, seconds: float, now: float) -> None:
    """Put a dispatcher on watch for `seconds`, at most SHIFT_MAX_S. End the shift of the dispatcher
    who hands over. If the dispatcher is on watch already, the shift ends `seconds` from now. Raises
    Refused if the member may not answer an SOS.
    """
    _check_can_answer(db, workspace, member)
    until = now + min(seconds, SHIFT_MAX_S)
    db.execute(
        f"UPDATE shift SET ended = ? WHERE workspace = ? AND {IS_ON_WATCH} AND heir = ?",
        *(now, workspace, now, member),
    )
    if not db.execute(
        f"UPDATE shift SET until = ? WHERE workspace = ? AND member = ? AND {IS_ON_WATCH}"
        " RETURNING id",
        *(until, workspace, member, now),
    ):
        db.execute(
            "INSERT INTO shift (workspace, member, begun, until) VALUES (?, ?, ?, ?)",
            *(workspace, member, now, until),
        )
    audit.write_line(
        db, workspace, str(member), "watch take", f"until {format_clock_time(until)}", now
    )
    announce_check(db, workspace)


def hand_over(
    db: Db, workspace: int, member: int, next_dispatcher: int, note: str, now: float
) -> None:
    """Ask `next_dispatcher` to take the watch, and leave the note for them. Raises Refused if
    `member` is not on watch, or if `next_dispatcher` is `member` or may not answer an SOS.
    """
    _check_can_answer(db, workspace, next_dispatcher)
    if member == next_dispatcher:
        raise Refused("you cannot hand over to yourself: end the watch instead")
    if not db.execute(
        f"UPDATE shift SET heir = ?, note = ? WHERE workspace = ? AND member = ? AND {IS_ON_WATCH}"
        " RETURNING id",
        *(next_dispatcher, note, workspace, member, now),
    ):
        raise Refused("only a user on watch can hand it over: take the watch first")
    audit.write_line(db, workspace, str(member), "watch hand over", f"to {next_dispatcher}", now)


def end_watch(db: Db, workspace: int, member: int, note: str, now: float) -> None:
    """End a dispatcher's watch, and store the note unless it is empty. Raises Refused if
    the dispatcher is not on watch.
    """
    if not db.execute(
        "UPDATE shift SET ended = ?, note = CASE WHEN ? = '' THEN note ELSE ? END"
        f" WHERE workspace = ? AND member = ? AND {IS_ON_WATCH} RETURNING id",
        *(now, note, note, workspace, member, now),
    ):
        raise Refused("this user is not on watch; see `fieldagent hub contact watch show`")
    audit.write_line(db, workspace, str(member), "watch end", "", now)
    announce_check(db, workspace)


def _check_can_answer(db: Db, workspace: int, member: int) -> None:
    if member not in list_dispatchers(db, workspace):
        raise Refused(
            sentence(
                (
                    "user {member} cannot answer an SOS here: make them a dispatcher with"
                    " `fieldagent hub user role {member} dispatcher`"
                ),
                member=member,
            )
        )


def set_hours(
    db: Db, workspace: int, hours: Hours | None, now: float, actor: str = audit.ADMINISTRATION
) -> None:
    """Set the watch hours of a workspace, or remove them if `hours` is None."""
    db.execute("DELETE FROM watch_hours WHERE workspace = ?", workspace)
    if hours is not None:
        db.execute(
            "INSERT INTO watch_hours (workspace, begins, ends, due) VALUES (?, ?, ?, 0)",
            *(workspace, *hours),
        )
        announce_check(db, workspace)
    audit.write_line(db, workspace, actor, "watch hours", str(hours or "none"), now)


def describe_watch(db: Db, workspace: int, now: float) -> dict[str, Any]:
    """Return the current shifts, the last ended shifts, and the watch hours."""
    rows = db.execute(
        "SELECT shift.member, own.name, begun, until, heir, other.name, note FROM shift"
        " JOIN member own ON own.id = shift.member LEFT JOIN member other ON other.id = heir"
        f" WHERE shift.workspace = ? AND {IS_ON_WATCH} ORDER BY shift.id",
        *(workspace, now),
    )
    before = db.execute(
        "SELECT shift.member, name, begun, CASE WHEN ended IS NULL THEN until ELSE ended END, note"
        f" FROM shift JOIN member ON member.id = shift.member WHERE workspace = ? AND NOT"
        f" ({IS_ON_WATCH})"
        " ORDER BY shift.id DESC LIMIT ?",
        *(workspace, now, ENDED_SHIFTS_MAX),
    )
    hours, alone = None, None
    watch = "SELECT begins, ends, alone FROM watch_hours WHERE workspace = ?"
    if watched := db.execute(watch, workspace):
        starts, ends, alone = watched[0]
        hours = str(Hours(starts, ends))
    return {
        "onWatch": [
            {
                "user": {"id": str(member), "name": name},
                "since": since,
                "until": until,
                "handsOverTo": None
                if successor is None
                else {"id": str(successor), "name": heirs_name},
                "note": note,
            }
            for member, name, since, until, successor, heirs_name, note in rows
        ],
        "before": [
            {
                "user": {"id": str(member), "name": name},
                "since": since,
                "ended": ended_at,
                "note": note,
            }
            for member, name, since, ended_at, note in before
        ],
        "hours": hours,
        "unattendedSince": None if rows else alone,
    }


def compute_next_due(db: Db) -> float:
    """Return the Unix time when the next workspace must be checked."""
    return find_earliest(db, "SELECT min(due) FROM watch_hours")


def check_watches(db: Db, now: float) -> list[str]:
    """Check each workspace whose check is due. Warn if no dispatcher is on watch, and raise the
    alarm if still no dispatcher takes the watch. Return the log lines.
    """
    due = db.execute(
        f"SELECT workspace FROM watch_hours WHERE due <= ? ORDER BY workspace{db.skip_locked()}",
        now,
    )
    lines = [_check_watch(db, workspace, now) for (workspace,) in due]
    return [line for line in lines if line]


def _check_watch(db: Db, workspace: int, now: float) -> str:
    """Raise an alarm if no dispatcher has been on watch for `ALARM_AFTER_S` within the hours.
    Return a log line or an empty string.
    """
    rows = db.execute(
        "SELECT begins, ends, alone, alarm, name FROM watch_hours"
        " JOIN workspace ON workspace.id = workspace WHERE workspace = ?",
        workspace,
    )
    if not rows:
        return ""
    starts, ends, alone, alarm, name = rows[0]
    hours, line = Hours(starts, ends), ""
    ((until,),) = db.execute(
        f"SELECT max(until) FROM shift WHERE workspace = ? AND {IS_ON_WATCH}", *(workspace, now)
    )
    due = min(hours.compute_next_change(now), until or inf)
    if until is not None or not hours.is_within(now):
        if alarm is not None and until is not None:
            sos.record_event(db, alarm, "heard", now, detail="a dispatcher is on watch again")
        alone = alarm = None
    elif alone is None:
        alone, due = now, min(due, now + ALARM_AFTER_S)
        line = f"no one is on watch in {name}; the alarm is raised in {ALARM_AFTER_S / 60:g} min"
    elif alarm is None and now < alone + ALARM_AFTER_S:
        due = min(due, alone + ALARM_AFTER_S)
    elif alarm is None:
        text = f"No one is on watch in {name} since {format_clock_time(alone)} (hours: {hours})"
        alarm = _raise(db, workspace, text, now)
        line = text if alarm is None else f"{text}: alarm {alarm}"
    db.execute(
        "UPDATE watch_hours SET alone = ?, alarm = ?, due = ? WHERE workspace = ?",
        *(alone, alarm, min(due, now + _DAY), workspace),
    )
    return line


def _raise(db: Db, workspace: int, text: str, now: float) -> int | None:
    """Raise the alarm about the workspace's first kit, because an alarm needs a device. Return None
    if the workspace has no kit.
    """
    first = db.execute(
        "SELECT id, member FROM device WHERE workspace = ? AND disabled IS NULL ORDER BY id"
        " LIMIT 1",
        workspace,
    )
    if not first:
        return None
    device, member = first[0]
    posting = Posting(workspace, member, Message(text), int(now), SOS_PRIORITY, alarm=True)
    return ledger.raise_alarm(db, posting, device, now, ALARM_KIND)
