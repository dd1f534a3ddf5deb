"""Until when a device is to be heard of: the hub keeps it, so that a dead kit raises the alarm.

Any item of a device is its check-in. One that is late is told in the log at first; if nothing comes
for `PATIENCE` more, the alarm is raised: on the list of SOS, and to webhooks.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from fieldagent.hub import ledger, sos
from fieldagent.hub.audit import note
from fieldagent.hub.directory import ADMINISTRATION
from fieldagent.hub.ledger import Posting
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import SOS_PRIORITY, Message
from fieldagent.package.writing import clock_time

log = logging.getLogger(__name__)

PATIENCE = 900.0
"""Seconds from the warning to the alarm. Also after a hub was away, as what waited comes then."""
DAY = 86_400.0
MINUTE = 60.0


class Rule(NamedTuple):
    """How often: one of the two."""

    every: float | None = None
    """Seconds after the last item."""
    by_minute: int | None = None
    """Once before this minute of each UTC day."""

    def __str__(self) -> str:
        if self.every is not None:
            return f"every {self.every / 3600:g} h"
        hour, minute = divmod(self.by_minute or 0, 60)
        return f"by {hour:02}:{minute:02} UTC"

    def first(self, now: float) -> float:
        """When it is due, as the rule begins."""
        if self.every is not None:
            return now + self.every
        due = now - now % DAY + (self.by_minute or 0) * MINUTE
        return due if due > now else due + DAY

    def after(self, heard: float) -> float:
        """When it is due next, as an item came: that was the check-in of its day."""
        return self.first(heard) + (DAY if self.every is None else 0.0)


def begin(db: Db, device: int, rule: Rule, *, now: float) -> float:
    """In place of what there was; when the first is due."""
    due = rule.first(now)
    db.execute(
        "INSERT INTO check_in (device, every, by_minute, due) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (device) DO UPDATE SET every = excluded.every, due = excluded.due,"
        " by_minute = excluded.by_minute, warned = NULL, sos = NULL",
        device,
        rule.every,
        rule.by_minute,
        due,
    )
    note(db, ADMINISTRATION, "device checkin", f"{device} {rule}", now)
    return due


def end(db: Db, device: int, *, now: float) -> None:
    db.execute("DELETE FROM check_in WHERE device = ?", device)
    note(db, ADMINISTRATION, "device checkin", f"{device} off", now)


def heard(db: Db, device: int, now: float) -> None:
    """An item of it came."""
    rows = db.execute("SELECT every, by_minute, sos FROM check_in WHERE device = ?", device)
    for every, by_minute, alarm in rows:
        db.execute(
            "UPDATE check_in SET due = ?, warned = NULL, sos = NULL WHERE device = ?",
            Rule(every, by_minute).after(now),
            device,
        )
        if alarm is not None and db.execute("SELECT 1 FROM sos WHERE id = ?", alarm):
            sos.note_event(db, alarm, "heard", now)


def look(db: Db, now: float) -> list[str]:
    """Warn of those that are late, and raise the alarm for those that stay so; what to log."""
    rows = db.execute(
        "SELECT c.device, device.name, device.workspace, device.member, every, by_minute, warned,"
        " latitude, longitude, position_at, contact.at FROM check_in c"
        " JOIN device ON device.id = c.device LEFT JOIN contact ON contact.device = c.device"
        " WHERE c.sos IS NULL AND c.due <= ? AND (warned IS NULL OR warned <= ?)"
        " AND device.disabled IS NULL ORDER BY c.device"
        + db.skip_locked.replace("UPDATE", "UPDATE OF c"),
        now,
        now - PATIENCE,
    )
    told = []
    for device, name, workspace, member, every, by_minute, warned, *last in rows:
        text = _words(name, Rule(every, by_minute), *last)
        if warned is None:
            db.execute("UPDATE check_in SET warned = ? WHERE device = ?", now, device)
            told.append(f"{text}; the alarm is raised in {PATIENCE / 60:g} min")
            continue
        item = Message(text)
        posting = Posting(workspace, member, item, int(now), SOS_PRIORITY, sos=True)
        alarm = ledger.raise_overdue(db, posting, device, now)
        db.execute("UPDATE check_in SET sos = ? WHERE device = ?", alarm, device)
        told.append(f"{text}: alarm {alarm}; `fieldagent hub sos show {alarm}`")
    return told


def is_late(db: Db, now: float) -> bool:
    """Whether `look` may find something."""
    late = "SELECT 1 FROM check_in WHERE sos IS NULL AND due <= ? LIMIT 1"
    return bool(db.execute(late, now))


def _words(
    name: str,
    rule: Rule,
    latitude: float | None,
    longitude: float | None,
    position_at: float | None,
    contact: float | None,
) -> str:
    since = "ever" if contact is None else f"since {clock_time(contact)}"
    place = ""
    if position_at is not None:
        place = f", last at {latitude} {longitude}, {clock_time(position_at)}"
    return f"No word from {name} {since}{place} (check-in {rule})"


def shown(every: float | None, by_minute: int | None, due: float, **stages: Any) -> dict[str, Any]:
    """For who asks how a device stands: `stages` are `warned` and `sos`."""
    late = "overdue" if stages["sos"] is not None else "late" if stages["warned"] else "in time"
    return {"rule": str(Rule(every, by_minute)), "due": float(due), "state": late}
