"""Describes the state of a push for each addressed device, for `/api/push/{id}`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fieldagent.hub.access.caller import Caller
from fieldagent.hub.records import workspace_log
from fieldagent.hub.records.operator_trouble import REASON_SQL
from fieldagent.hub.records.stored_entry import DAMAGED_ROW, parse_stored_object
from fieldagent.hub.store.contract import Db, make_marks
from fieldagent.package.delivery import STAGE_ORDER, Stage, describe_stage

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

STATES = {
    "waiting": "waiting",
    "packed": "waiting",  # The item is in a message that the operator has not accepted yet.
    "sent": "on its way",
    "stored": "stored",
    "expired": "expired",
    "collapsed": "collapsed",
}
"""Maps the state of a delivery in the database to the state that callers of the API see."""


def find_shown_state(state: str) -> str:
    """Return the state of a delivery that a caller sees. The function never fails, because a list
    must show every row, even if its state is damaged.
    """
    return STATES.get(state, DAMAGED_ROW)


def is_request_id(text: str) -> bool:
    """Return True if a text has the form of a request id. The function does not check that the
    request exists.
    """
    return _ID.fullmatch(text) is not None


def describe_push_state(
    db: Db, caller: Caller, request_id: str, now: float
) -> dict[str, Any] | None:
    """Return the state of a push, or None if the caller has no such push. A User sees only their
    own pushes.
    """
    if not is_request_id(request_id):
        return None
    rows = db.execute(
        "SELECT id, sender, accepted, expires, target, addressee FROM item WHERE request_id = ?"
        " AND workspace = ? AND source_device IS NULL",
        request_id,
        caller.workspace,
    )
    if not rows:
        return None
    item, sender, accepted, expires, target, addressee = rows[0]
    if caller.type == "User" and sender != caller.member:
        return None
    return {
        "id": request_id,
        "sourceUserId": str(sender),
        "targetUserId": None if target is None else str(target),
        "accepted": float(accepted),
        "expires": None if expires is None else float(expires),
        "to": parse_stored_object(addressee, dict[str, Any]),
        "devices": list_device_standings(db, item, now),
        "reached": list_reached(db, [item])[item],
    }


def list_reached(db: Db, items: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """Return the stages that each item has reached, with the members who reached them. The stages
    are in the terms of `package.delivery`, from the lowest to the highest.
    """
    steps: dict[int, list[dict[str, Any]]] = {item: [] for item in items}
    if not items:
        return steps
    rows = db.execute(
        "SELECT item, at, rung, member.name, member, text FROM reached LEFT JOIN member"
        f" ON member.id = member WHERE item IN ({make_marks(items)}) UNION ALL"
        " SELECT item, ended, 0, member.name, member, '' FROM delivery JOIN device"
        " ON device.id = delivery.device JOIN member ON member.id = device.member"
        f" WHERE state = 'stored' AND item IN ({make_marks(items)}) ORDER BY 2",
        *items,
        *items,
    )
    # Entries of the same stage stay in the order of their times, because Python's sort is stable.
    for item, at, stage, name, member, text in sorted(rows, key=_compute_height):
        receiver = name or (f"user {member}" if member else "")
        step = Stage(stage)
        stage_text = describe_stage(step, receiver or "the addressee", text)
        steps[item].append(
            {
                "at": float(at or 0),
                "stage": step.name.lower(),
                "who": receiver,
                "detail": text,
                "text": stage_text,
            }
        )
    return steps


def _compute_height(row: tuple[Any, ...]) -> int:
    _item, _at, stage, *_ = row
    return STAGE_ORDER.index(stage)


def list_device_standings(db: Db, item: int, now: float) -> list[dict[str, Any]]:
    """Return the states of an item's deliveries. If the item is for everyone, the result includes
    devices without a delivery row, which have not fetched it yet.
    """
    rows = db.execute(
        "SELECT device.id, device.name, device.member, delivery.state, delivery.way,"
        f" delivery.ended, {REASON_SQL} FROM delivery JOIN device ON device.id = delivery.device"
        " WHERE delivery.item = ?",
        item,
    )
    for each in workspace_log.list_awaiting(db, item, now):
        device, name, member, state, ended_at, reason = each
        rows.append((device, name, member, state, None, ended_at, reason))
    return [
        {
            "id": id_,
            "name": name,
            "userId": str(member),
            "state": find_shown_state(state),
            "over": bearer,
            "ended": None if ended_at is None else float(ended_at),
            "reason": reason,
        }
        for id_, name, member, state, bearer, ended_at, reason in sorted(rows)
    ]
