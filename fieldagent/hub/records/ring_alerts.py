"""Repeated ring alerts for modems that have not fetched their messages from the gateway.

The gateway sends one ring alert when a message arrives. A modem that is off, or that does not see
the sky, misses this ring alert. A repeated ring alert is free, but the session that follows costs
the kit a credit. So the hub repeats ring alerts less and less often, and finally stops. Each modem
has one series of ring alerts for all its messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fieldagent.hub.store.contract import Db, Store, find_earliest
from fieldagent.system.lazy_dataclass import dataclass

RING_PAUSES_S = (300.0, 900.0, 3600.0, 14_400.0, 86_400.0)
"""Seconds before each ring alert, by the number of earlier alerts. The last value applies to all
later alerts."""

GATEWAY_RETENTION_S = 5 * 86_400.0
"""Seconds for which the operator's gateway keeps an MT message (SBD Developers Guide)."""

RINGS_PER_BATCH = 8
"""Number of modems that get a ring alert in one batch."""


@dataclass(frozen=True, slots=True)
class RingAlert:
    device: int
    name: str
    imei: str
    operator: str
    waiting: int


def record_accepted_message(
    db: Db, device: int, waiting_count: int, items: Sequence[int], now: float
) -> None:
    """Record that the gateway has accepted one more message and has sent a ring alert.
    `waiting_count` is the number of messages that now wait there. The ring alerts end when all
    `items` have expired.
    """
    expiries = [
        expires
        for item in items
        for (expires,) in db.execute("SELECT expires FROM item WHERE id = ?", item)
    ]
    until = now + GATEWAY_RETENTION_S
    if expiries and None not in expiries:
        until = min(until, max(expiries))
    db.execute(
        "INSERT INTO ring_alert (device, waiting, rung, due, until) VALUES (?, ?, 0, ?, ?)"
        " ON CONFLICT (device) DO UPDATE SET waiting = excluded.waiting, rung = 0,"
        " due = excluded.due, until = CASE WHEN ring_alert.until > excluded.until"
        " THEN ring_alert.until ELSE excluded.until END",
        device,
        waiting_count,
        now + RING_PAUSES_S[0],
        until,
    )


def record_session(db: Db, device: int, fetched: bool, now: float) -> None:
    """Record a session of the modem. `fetched` is True if the gateway delivered a message in this
    session. If it is False, no message waits, so the ring alerts end.
    """
    if fetched:
        db.execute(
            "UPDATE ring_alert SET waiting = waiting - 1, rung = 0, due = ? WHERE device = ?",
            now + RING_PAUSES_S[0],
            device,
        )
        db.execute("DELETE FROM ring_alert WHERE device = ? AND waiting <= 0", device)
    else:
        end_ring_alerts(db, device)


async def record_session_of_imei(
    store: Store, imei: str, *, fetched: bool, clock: Callable[[], float]
) -> None:
    """Record a session of the modem with this IMEI. Implements `operator.RecordModemSession`. Most
    sessions are of modems that need no ring alert.
    """
    alert_query = "SELECT device FROM ring_alert JOIN device ON device.id = device WHERE imei = ?"
    for (device,) in await store.read(lambda db: db.execute(alert_query, imei)):
        await store.commit(partial(record_session, device=device, fetched=fetched, now=clock()))


def record_confirmations(db: Db, membership: str, devices: Sequence[Any], now: float) -> None:
    """Record that these devices have stored something, possibly over IP. End the ring alerts of
    devices for which no message waits. `membership` is the SQL condition after the column's name.
    """
    db.execute(
        f"DELETE FROM ring_alert WHERE device {membership} AND NOT EXISTS (SELECT 1 FROM delivery"
        " WHERE delivery.device = ring_alert.device AND state = 'sent'"
        " AND (expires IS NULL OR expires > ?))",
        *devices,
        now,
    )


def end_ring_alerts(db: Db, device: int) -> None:
    """Send no further ring alerts to a device."""
    db.execute("DELETE FROM ring_alert WHERE device = ?", device)


_FROM_DUE = (
    " FROM ring_alert r JOIN device ON device.id = r.device WHERE r.due <= ? AND r.until > ?"
    " AND device.imei IS NOT NULL AND device.operator IS NOT NULL AND device.disabled IS NULL"
)


def is_due(db: Db, now: float) -> bool:
    """Return True if a modem needs a ring alert now."""
    return bool(db.execute(f"SELECT 1{_FROM_DUE} LIMIT 1", now, now))


def compute_next_ring(db: Db) -> float:
    """Return the Unix time of the next scheduled ring alert, or infinity if none is scheduled."""
    return find_earliest(db, "SELECT min(due) FROM ring_alert WHERE until > due")


def claim_ring_alerts(db: Db, now: float) -> list[RingAlert]:
    """Return the ring alerts that must be sent now, at most `RINGS_PER_BATCH`, and schedule the
    next ring alert of each modem. So a returned ring alert counts as sent, even if the call to the
    operator fails or the process crashes.
    """
    suffix = db.skip_locked("r")
    rows = db.execute(
        "SELECT r.device, device.name, device.imei, device.operator, r.waiting, r.rung"
        f"{_FROM_DUE} ORDER BY r.due LIMIT {RINGS_PER_BATCH}{suffix}",
        now,
        now,
    )
    alerts = []
    for *fields, rung_at in rows:
        alert = RingAlert(*fields)
        alerts.append(alert)
        db.execute(
            "UPDATE ring_alert SET rung = ?, due = ? WHERE device = ?",
            rung_at + 1,
            now + RING_PAUSES_S[min(rung_at + 1, len(RING_PAUSES_S) - 1)],
            alert.device,
        )
    return alerts
