"""Expiry of deliveries, and deletion of old items."""

from __future__ import annotations

from fieldagent.hub.records import workspace_log
from fieldagent.hub.records.fragments import UNAUTHENTICATED_COLUMN
from fieldagent.hub.records.ledger import WAITING_STATES
from fieldagent.hub.store.contract import Db, find_earliest

ROWS_PER_TRANSACTION = 100
"""Number of rows that expire or are deleted in one transaction. The number is small, because no
other task can write during a transaction."""


def expire_deliveries(db: Db, now: float) -> int:
    """Expire some deliveries and return their number. Repeat the call until the number is 0."""
    return len(
        db.execute(
            # Check the state again in the outer condition: another process may confirm the delivery
            # meanwhile. PostgreSQL rechecks only the outer condition on a row that was changed
            # (PostgreSQL manual, 13.2.1).
            "UPDATE delivery SET state = 'expired', ended = ?, reason = 'expired'"
            " WHERE state IN ('waiting', 'packed') AND (item, device) IN (SELECT item, device"
            " FROM delivery WHERE state IN ('waiting', 'packed') AND expires <= ?"
            " ORDER BY expires LIMIT ?) RETURNING item",
            *(now, now, ROWS_PER_TRANSACTION),
        )
    )


def compute_next_expiry(db: Db) -> float:
    """Return the Unix time when the next delivery expires."""
    sql = "SELECT min(expires) FROM delivery WHERE state IN ('waiting', 'packed')"
    return find_earliest(db, sql)


def delete_old_items(db: Db, *, before: float, now: float) -> int:
    """Delete some items older than `before` and return their number. Repeat the call until the
    number is 0.

    An item is kept while a delivery or a webhook request waits, and until each device has fetched
    it or it expires. The first item of an incident is also kept while the incident is open, and if
    it was closed after `before`.
    """
    return len(
        db.execute(
            "DELETE FROM item WHERE id IN (SELECT id FROM item WHERE accepted < ?"
            " AND NOT EXISTS (SELECT 1 FROM delivery WHERE"
            f" delivery.item = item.id AND delivery.state IN {WAITING_STATES}) AND NOT EXISTS"
            " (SELECT 1 FROM"
            " webhook_delivery WHERE webhook_delivery.item = item.id AND webhook_delivery.state"
            " = 'waiting') AND (place IS NULL OR expires <= ? OR NOT EXISTS (SELECT 1 FROM device"
            f" WHERE {workspace_log.IS_AWAITED})) AND NOT EXISTS (SELECT 1 FROM sos WHERE sos.item"
            " = item.id AND coalesce(closed, ?) >= ?) ORDER BY accepted LIMIT ?) RETURNING id",
            *(before, now, before, before, ROWS_PER_TRANSACTION),
        )
    )


_REMEMBERING_TABLES = {
    "receipt": "id",
    "idempotency": "credential, member, key",
    "slice": f"device, {UNAUTHENTICATED_COLUMN}, sequence, count, position",
    "arrived": f"device, {UNAUTHENTICATED_COLUMN}, sequence, digest",
    "contact_answer": "id",
}
"""Tables by which the hub recognises a repeated item or request, so that it gives the same answer
again. The values are the columns of the tables' keys."""


def forget_remembered(db: Db, *, before: float) -> int:
    """Delete some rows older than `before` from each of `_REMEMBERING_TABLES`. Return their
    number.
    """
    dropped = 0
    for table, key in _REMEMBERING_TABLES.items():
        # Keep SOS, because an attacker can replay a recorded SOS years later.
        sos_condition = " AND sos = 0" if table == "arrived" else ""
        dropped += len(
            db.execute(
                f"DELETE FROM {table} WHERE at < ?{sos_condition} AND ({key}) IN"
                f" (SELECT {key} FROM {table} WHERE at < ?{sos_condition} ORDER BY at LIMIT ?)"
                " RETURNING at",
                *(before, before, ROWS_PER_TRANSACTION),
            )
        )
    return dropped
