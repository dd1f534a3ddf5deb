"""Hands MT messages over to the satellite operators.

A message stays in the database until an operator has accepted it or it is no longer needed. The row
of the message contains the cause of a failed call, for the person who pushed its content.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fieldagent.hub.field.mobile_terminated import IS_REACHABLE, list_due
from fieldagent.hub.operator.contract import Verdict
from fieldagent.hub.operator.failures import Scope, make_unknown
from fieldagent.hub.records import commands, mt_copies, operator_trouble, ring_alerts
from fieldagent.hub.records.due_receipts import announce_answer
from fieldagent.hub.records.operator_book import record_handover
from fieldagent.hub.records.usage import format_day
from fieldagent.hub.store.contract import Db, find_earliest, make_marks, make_membership
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.command import RemoteCommand
from fieldagent.wire.credit import compute_credits
from fieldagent.wire.envelope import decode
from fieldagent.wire.outcome import Outcome

CALL_SECONDS = 120.0
"""Seconds for which a process may claim a message. After that, another process takes over the
message, which may already have been sent."""

BACKOFF = (10.0, 60.0, 300.0, 1800.0)
"""Seconds before a message is handed over again, by the number of attempts. The last value applies
to all later attempts."""

URGENT_RETRY_MAX_S = 60.0
"""Largest number of seconds before an answer to an SOS is handed over again, whatever the failure
was."""

CALLS = 8
"""Largest number of messages handed to one operator at the same time."""


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """An MT message that this process may hand over to its operator now."""

    id: int
    device: int
    name: str
    imei: str
    operator: str
    body: bytes
    urgent: bool
    tries: int
    kind: str = ""
    address: str = ""
    since: float = 0.0
    claimed_until: float = 0.0


Busy = Mapping[str, int]
"""Number of calls in progress, by operator."""


def is_due(db: Db, now: float, busy: Busy = {}) -> bool:  # noqa: B006
    """Return True if `pack_due_messages` or `claim_messages` has work to do."""
    return bool(list_due(db, now, lock=False) or _list_callable(db, now, busy, lock=False))


def compute_next_due(db: Db, busy: Busy = {}) -> float:  # noqa: B006
    """Return the earliest Unix time when `is_due` may become True even if no message arrives.
    Return 0 if the time is unknown, because something waits for the end of a link or for credits.
    """
    without, full = _make_full_condition(busy)
    return find_earliest(
        db,
        "SELECT min(at) FROM (SELECT (SELECT min(satellite_from) FROM delivery"
        " WHERE delivery.device = device.id AND state = 'waiting' AND satellite_from IS NOT NULL)"
        f" AS at FROM device WHERE {IS_REACHABLE} UNION ALL SELECT 0 FROM device WHERE"
        f" {IS_REACHABLE}"
        " AND EXISTS (SELECT 1 FROM receipt WHERE receipt.device = device.id"
        " AND state = 'waiting' AND urgent = 1)"
        " UNION ALL SELECT CASE WHEN satellite_from > command.not_before THEN satellite_from"
        " ELSE command.not_before END FROM command JOIN device ON device.id = command.device"
        f" WHERE {IS_REACHABLE} AND command.state = 'waiting' AND satellite_from IS NOT NULL"
        " UNION ALL SELECT CASE WHEN claimed_until > not_before THEN claimed_until"
        " ELSE not_before END FROM mobile_terminated JOIN device ON device.id = device"
        f" WHERE {IS_REACHABLE}{without}) AS times",
        *full,
    )


def _make_full_condition(busy: Busy) -> tuple[str, list[str]]:
    """Return an SQL condition with its parameters that excludes operators with `CALLS` calls in
    progress.
    """
    full = sorted(operator for operator, calls in busy.items() if calls >= CALLS)
    return (f" AND device.operator NOT IN ({make_marks(full)})" if full else ""), full


def claim_messages(db: Db, now: float, busy: Busy = {}) -> list[OperatorCall]:  # noqa: B006
    """Claim the next message of some devices for this process: one message per device, urgent
    messages first.

    If another process has claimed a message and never stored a result, the message may have been
    sent. It is handed over again.
    """
    until = now + CALL_SECONDS
    candidates = (OperatorCall(*row) for row in _list_callable(db, now, busy, lock=True))
    calls = [replace(call, claimed_until=until) for call in candidates]
    for call in calls:
        db.execute(
            "UPDATE mobile_terminated SET state = 'calling', claimed_until = ?, claimed_by = ?,"
            " tries = tries + 1 WHERE id = ?",
            until,
            db.worker,
            call.id,
        )
    return calls


def release_claims(db: Db, calls: Sequence[OperatorCall]) -> None:
    """Release the claims of messages that are not handed over now."""
    for call in calls:
        db.execute(
            "UPDATE mobile_terminated SET claimed_until = 0 WHERE id = ? AND claimed_until = ?",
            *(call.id, call.claimed_until),
        )


def _list_callable(db: Db, now: float, busy: Busy, *, lock: bool) -> list[tuple[Any, ...]]:
    without, full = _make_full_condition(busy)
    operators = db.execute(
        "SELECT DISTINCT device.operator FROM mobile_terminated JOIN device"
        f" ON device.id = mobile_terminated.device WHERE device.operator IS NOT NULL{without}",
        *full,
    )
    return [
        row
        for (operator,) in operators
        for row in _list_due(db, operator, CALLS - busy.get(operator, 0), now, lock=lock)
    ]


def _list_due(
    db: Db, operator: str, limit: int, now: float, *, lock: bool
) -> list[tuple[Any, ...]]:
    suffix = db.skip_locked("m") if lock else ""
    return db.execute(
        "SELECT m.id, m.device, device.name, device.imei, device.operator, m.body, m.urgent,"
        " m.tries, device.modem, device.thing, m.created FROM mobile_terminated m"
        " JOIN device ON device.id = m.device"
        " WHERE m.claimed_until <= ? AND m.not_before <= ? AND device.imei IS NOT NULL"
        " AND device.operator = ? AND device.disabled IS NULL AND NOT EXISTS"
        " (SELECT 1 FROM mobile_terminated other WHERE other.device = m.device"
        " AND other.claimed_until > ?) AND m.id = (SELECT head.id FROM mobile_terminated head"
        " WHERE head.device = m.device AND (head.trouble <> ? OR head.not_before <= ?)"
        " ORDER BY head.urgent DESC, head.id LIMIT 1)"
        " ORDER BY m.urgent DESC, m.id LIMIT ?" + suffix,
        now,
        now,
        operator,
        now,
        # The operator refuses only this message, which must not block the others.
        Scope.MESSAGE.value,
        now,
        limit,
    )


def record_verdict(db: Db, call: OperatorCall, verdict: Verdict, now: float) -> str:
    """Record the result of a call, only once. If the result raises an alarm, return a log line
    about it. Otherwise return an empty string.
    """
    if verdict.outcome is Outcome.SENT:
        receipts = _list_receipts(db, call)
        if (dropped := delete_message(db, call)) is not None:
            _book(db, call, now)
            id_ = verdict.id
            mt_copies.store_copy(
                db, call.device, call.body, dropped, receipts, operator_id=id_, now=now
            )
        if dropped is not None and verdict.id:
            record_handover(db, call.operator, verdict.id, call.device, now)
        if dropped is not None and verdict.waiting:
            items = [item for item, _, _ in dropped]
            ring_alerts.record_accepted_message(db, call.device, verdict.waiting, items, now)
        for item, position, count in dropped or ():
            _mark_sent(db, call.device, item, position, count)
        operator_trouble.record_account_success(db, call.operator, now)
        return ""
    return _schedule_retry(db, call, verdict, now)


def _schedule_retry(db: Db, call: OperatorCall, verdict: Verdict, now: float) -> str:
    """Keep the message for another attempt, whatever the failure was. Store the reason that people
    see.
    """
    failure = verdict.failure or make_unknown("nothing")
    doubtful = verdict.outcome is Outcome.DOUBTFUL
    wait = BACKOFF[min(call.tries, len(BACKOFF) - 1)] * random.uniform(1.0, 1.3)
    wait = max(wait, failure.retry_after)
    if call.urgent:
        wait = min(wait, URGENT_RETRY_MAX_S)
    rows = db.execute(
        "UPDATE mobile_terminated SET state = ?, claimed_until = 0, not_before = ?, trouble = ?,"
        " code = ?, reason = ? WHERE id = ? AND claimed_until > 0 RETURNING pieces",
        "doubtful" if doubtful else "ready",
        now + wait,
        failure.scope.value,
        failure.code,
        failure.text,
        call.id,
    )
    if not rows:
        return ""
    if doubtful:
        _book(db, call, now)
    own = failure.text if failure.scope is Scope.MESSAGE else ""
    for item, _, _ in json.loads(rows[0][0]):
        db.execute(
            "UPDATE delivery SET reason = ? WHERE item = ? AND device = ? AND state = 'packed'",
            *(own, item, call.device),
        )
    if failure.scope is Scope.ACCOUNT:
        return operator_trouble.record_account_failure(
            db, call.operator, call.device, failure.text, now
        )
    if failure.scope is not Scope.GATEWAY:
        operator_trouble.record_account_success(db, call.operator, now)
    return ""


def _list_receipts(db: Db, call: OperatorCall) -> list[int]:
    """Return the ids of the receipts in the message."""
    rows = db.execute("SELECT receipts FROM mobile_terminated WHERE id = ?", call.id)
    return [receipt for (receipt_list,) in rows for receipt in json.loads(receipt_list)]


def delete_message(db: Db, call: OperatorCall) -> list[tuple[int, int, int]] | None:
    """Delete a message after its call, and return the fragments in it: item, position and number of
    fragments. The list is empty if the message contains only receipts. Return None if the message
    was deleted before.
    """
    rows = db.execute("DELETE FROM mobile_terminated WHERE id = ? RETURNING pieces", call.id)
    return [tuple(piece) for piece in json.loads(rows[0][0])] if rows else None


def delete_unneeded(db: Db, call: OperatorCall) -> None:
    """Delete a message that is no longer needed. Its receipts wait for another channel."""
    receipts = _list_receipts(db, call)
    if delete_message(db, call) is None or not receipts:
        return
    membership, these = make_membership(db, receipts)
    db.execute(
        f"UPDATE receipt SET state = 'waiting' WHERE state = 'sent' AND id {membership}", *these
    )
    announce_answer(db, call.device)


def withdraw_updates(db: Db, device: int) -> None:
    """Let a new link deliver incident updates that wait for the satellite. The link delivers the
    updates that the operator has not accepted and those that the modem may not have. The updates
    then do not wait for an operator that refuses them, or for a view of the sky. If the operator
    has not accepted a message and it contains only such updates, delete the message.
    """
    mt_copies.send_updates_by_link(db, device)
    condition = "device = ? AND receipts <> '[]'"
    rows = db.execute(f"SELECT receipts FROM mobile_terminated WHERE {condition}", device)
    if not rows:
        return
    alone = f"{condition} AND pieces = '[]' AND state = 'ready'"
    db.execute(f"DELETE FROM mobile_terminated WHERE {alone}", device)
    membership, these = make_membership(
        db, [receipt for (receipt_list,) in rows for receipt in json.loads(receipt_list)]
    )
    db.execute(
        f"UPDATE receipt SET state = 'waiting' WHERE state = 'sent' AND id {membership}", *these
    )


def _mark_sent(db: Db, device: int, item: int, position: int, count: int) -> None:
    if count > 1:
        db.execute(
            "INSERT INTO fragment_sent (item, device, count, position) SELECT id, ?, ?, ? FROM item"
            " WHERE id = ? ON CONFLICT DO NOTHING",
            device,
            count,
            position,
            item,
        )
        ((is_gone,),) = db.execute(
            "SELECT count(*) FROM fragment_sent WHERE item = ? AND device = ? AND count = ?",
            item,
            device,
            count,
        )
        if is_gone < count:
            return
    db.execute(
        "UPDATE delivery SET state = 'sent', way = 'satellite', reason = ''"
        " WHERE item = ? AND device = ? AND state = 'packed'",
        item,
        device,
    )


def _book(db: Db, call: OperatorCall, now: float) -> None:
    db.execute(
        "INSERT INTO spent (day, device, bytes, credits) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (day, device) DO UPDATE SET bytes = spent.bytes + excluded.bytes,"
        " credits = spent.credits + excluded.credits",
        format_day(now),
        call.device,
        len(call.body),
        compute_credits(len(call.body)),
    )


def is_needed(db: Db, call: OperatorCall, now: float) -> bool:
    """Return True if some content of the message still waits. The IP link may have delivered the
    content already, or an undelivered command may have expired.
    """
    rows = db.execute("SELECT pieces FROM mobile_terminated WHERE id = ?", call.id)
    pieces = [piece for (segment_list,) in rows for piece in json.loads(segment_list)]
    if not pieces:
        orders = [e for e in decode(call.body).entries if isinstance(e.content, RemoteCommand)]
        return not orders or any(
            commands.is_under_way(db, call.device, each.sequence, now) for each in orders
        )
    return any(
        db.execute(
            "SELECT 1 FROM delivery WHERE item = ? AND device = ? AND state IN ('packed', 'sent')",
            item,
            call.device,
        )
        for item, _, _ in pieces
    )
