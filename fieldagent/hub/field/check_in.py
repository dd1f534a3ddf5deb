"""Check-in times of devices. The hub stores them, so that the failure of a kit raises an alarm.

An administrator, the kit itself, or both can require check-ins. The earliest due time applies. Any
item of a device is its check-in. If a check-in is late, the hub first logs a warning. If no item
arrives for another `WARNING_TO_ALARM_S` seconds, the hub raises an alarm in the list of incidents
and sends it to webhooks.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from fieldagent.hub.access.directory import audit_device
from fieldagent.hub.records import ledger, sos
from fieldagent.hub.records.audit import ADMINISTRATION
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.store.contract import Db, find_earliest, make_membership
from fieldagent.package.package import SOS_PRIORITY, Message
from fieldagent.package.writing import format_clock_time, format_minutes
from fieldagent.system.lazy_named_tuple import NamedTuple

log = logging.getLogger(__name__)

WARNING_TO_ALARM_S = 900.0
"""Seconds from the warning to the alarm. After an outage of the hub, the waiting items of kits
arrive within this time."""
DAY_S = 86_400.0
MINUTE_S = 60.0


NUMBERS_BEFORE = 10_000
"""Largest difference by which the number of a check-in request can be lower than the last
number, for a request that a later request overtook. If the difference is larger, the kit has a
new journal."""


class Rule(NamedTuple):
    """Check-in rule of a device. The rule has `interval`, `by_minute` or neither, and may include
    the kit's own request.
    """

    interval: float | None = None
    """Seconds after the last item until the check-in is due."""
    by_minute: int | None = None
    """Minute of the UTC day before which the daily check-in is due."""
    kit_every: float | None = None

    def __str__(self) -> str:
        parts = []
        if self.interval is not None:
            parts.append(f"every {format_minutes(int(self.interval))}")
        if self.by_minute is not None:
            hour, minute = divmod(self.by_minute, 60)
            parts.append(f"by {hour:02}:{minute:02} UTC")
        if self.kit_every is not None:
            parts.append(f"every {format_minutes(int(self.kit_every))}, as the kit asks")
        return "; ".join(parts)

    def compute_first(self, now: float) -> float:
        """Return the Unix time when the first check-in of a new rule is due."""
        return min(self._list_due_times(now, 0.0))

    def compute_next_after(self, heard_at: float) -> float:
        """Return the Unix time when the next check-in is due after an item at `heard_at`."""
        return min(self._list_due_times(heard_at, DAY_S))

    def _list_due_times(self, now: float, later: float) -> list[float]:
        due = [
            now + interval for interval in (self.interval, self.kit_every) if interval is not None
        ]
        if self.by_minute is not None:
            today = now - now % DAY_S + self.by_minute * MINUTE_S
            due.append((today if today > now else today + DAY_S) + later)
        return due


def begin_rule(db: Db, device: int, rule: Rule, *, now: float) -> float:
    """Begin a check-in rule, which replaces the administrator's earlier rule. Return the Unix time
    when the first check-in is due.
    """
    before = _make_rule(db, device)
    due = _set(db, device, rule._replace(kit_every=before.kit_every), now)
    audit_device(db, device, ADMINISTRATION, "device checkin", f"{device} {rule}", now)
    return due


def end_check_ins(db: Db, device: int, *, now: float) -> None:
    """End all check-ins of a device, including the kit's own request, because a lost kit cannot
    withdraw its request.
    """
    _set(db, device, Rule(), now)
    audit_device(db, device, ADMINISTRATION, "device checkin", f"{device} off", now)


def record_request(db: Db, device: int, within: int | None, number: int, *, now: float) -> None:
    """Record the check-in request that a kit has sent as its item `number`. The next check-in is
    due in `within` seconds; None ends the request. The item itself is also a check-in.
    """
    record_item(db, device, now)
    if _is_overtaken(db, device, number):
        return
    db.execute("UPDATE contact SET check_in_word = ? WHERE device = ?", number, device)
    _set(db, device, _make_rule(db, device)._replace(kit_every=within), now)


def _is_overtaken(db: Db, device: int, number: int) -> bool:
    """Return True if a later request of the kit has already arrived through another channel."""
    rows = db.execute("SELECT check_in_word FROM contact WHERE device = ?", device)
    return any(last is not None and 0 < last - number <= NUMBERS_BEFORE for (last,) in rows)


def _make_rule(db: Db, device: int) -> Rule:
    rows = db.execute("SELECT every, by_minute, kit_every FROM check_in WHERE device = ?", device)
    return Rule(*rows[0]) if rows else Rule()


def _set(db: Db, device: int, rule: Rule, now: float) -> float:
    if rule == Rule():
        db.execute("DELETE FROM check_in WHERE device = ?", device)
        return now
    due = rule.compute_first(now)
    db.execute(
        "INSERT INTO check_in (device, every, by_minute, kit_every, due) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (device) DO UPDATE SET every = excluded.every, due = excluded.due,"
        " by_minute = excluded.by_minute, kit_every = excluded.kit_every, warned = NULL,"
        " sos = NULL",
        device,
        *rule,
        due,
    )
    return due


def record_item(db: Db, device: int, now: float) -> None:
    """Record an item of the device as its check-in. Set the time of the next check-in, and add to
    the timeline of an alarm that the hub heard the device.
    """
    rows = db.execute(
        "SELECT sos, every, by_minute, kit_every FROM check_in WHERE device = ?", device
    )
    for alarm, *rule in rows:
        db.execute(
            "UPDATE check_in SET due = ?, warned = NULL, sos = NULL WHERE device = ?",
            Rule(*rule).compute_next_after(now),
            device,
        )
        if alarm is not None and db.execute("SELECT 1 FROM sos WHERE id = ?", alarm):
            sos.record_event(db, alarm, "heard", now)


def record_items(db: Db, devices: Collection[int], now: float) -> None:
    """Call `record_item` for each device, in one operation."""
    membership, these = make_membership(db, devices)
    select_sql = f"SELECT device FROM check_in WHERE device {membership} ORDER BY device"
    for (device,) in db.execute(select_sql, *these):
        record_item(db, device, now)


def warn_of_late(db: Db, now: float) -> list[str]:
    """Warn of late devices. Raise the alarm for devices that are still late after a warning. Return
    the log lines.
    """
    rows = db.execute(
        "SELECT c.device, device.name, device.workspace, device.member, every, by_minute,"
        " kit_every, warned, latitude, longitude, position_at, contact.at FROM check_in c"
        " JOIN device ON device.id = c.device LEFT JOIN contact ON contact.device = c.device"
        " WHERE c.sos IS NULL AND c.due <= ? AND (warned IS NULL OR warned <= ?)"
        " AND device.disabled IS NULL ORDER BY c.device" + db.skip_locked("c"),
        now,
        now - WARNING_TO_ALARM_S,
    )
    lines = []
    for device, name, workspace, member, *fields in rows:
        *rule, warned, latitude, longitude, position_at, contact = fields
        text = _format_alarm_text(name, Rule(*rule), latitude, longitude, position_at, contact)
        if warned is None:
            db.execute("UPDATE check_in SET warned = ? WHERE device = ?", now, device)
            lines.append(f"{text}; the alarm is raised in {WARNING_TO_ALARM_S / 60:g} min")
            continue
        item = Message(text)
        posting = Posting(workspace, member, item, int(now), SOS_PRIORITY, alarm=True)
        alarm = ledger.raise_alarm(db, posting, device, now, "overdue")
        db.execute("UPDATE check_in SET sos = ? WHERE device = ?", alarm, device)
        lines.append(f"{text}: alarm {alarm}; `fieldagent hub alarm show {alarm}`")
    return lines


def compute_next_late(db: Db) -> float:
    """Return the Unix time when the next warning or alarm about a late device is due."""
    return find_earliest(
        db,
        "SELECT min(CASE WHEN warned + ? > due THEN warned + ? ELSE due END) FROM check_in"
        " JOIN device ON device.id = device WHERE sos IS NULL AND disabled IS NULL",
        WARNING_TO_ALARM_S,
        WARNING_TO_ALARM_S,
    )


def _format_alarm_text(
    name: str,
    rule: Rule,
    latitude: float | None,
    longitude: float | None,
    position_at: float | None,
    contact: float | None,
) -> str:
    since = "ever" if contact is None else f"since {format_clock_time(contact)}"
    place_text = ""
    if position_at is not None:
        place_text = f", last at {latitude} {longitude}, {format_clock_time(position_at)}"
    return f"Nothing heard from {name} {since}{place_text} (check-in {rule})"


SHOWN_COLUMNS = {
    f"check-in {column}": f"check_in.{column}"
    for column in ("every", "by_minute", "kit_every", "due", "warned", "sos")
}
"""Columns of `check_in` for `describe_check_in`."""


def describe_check_in(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a device's check-in state from the columns `SHOWN_COLUMNS`, or None if no check-in is
    required.
    """
    interval, by_minute, kit_every, due, warned, sos = (row[name] for name in SHOWN_COLUMNS)
    if due is None:
        return None
    late = "overdue" if sos is not None else "late" if warned else "in time"
    return {"rule": str(Rule(interval, by_minute, kit_every)), "due": float(due), "state": late}
