"""How a push stands with each device that is to have it, for who asks `/api/push/{id}`."""

from __future__ import annotations

import re
from typing import Any

from fieldagent.hub.access.caller import Caller
from fieldagent.hub.records.operator_trouble import WHY
from fieldagent.hub.store.contract import Db

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

STATES = {
    "waiting": "waiting",
    "packed": "waiting",  # in a message that the satellite operator has not taken yet
    "sent": "on its way",
    "stored": "stored",
    "expired": "expired",
    "collapsed": "collapsed",
}
"""Of a delivery, as a caller is told it."""


def is_request_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def push_standing(db: Db, caller: Caller, request_id: str) -> dict[str, Any] | None:
    """None where this caller has pushed nothing of that id: a User sees their own alone."""
    if not is_request_id(request_id):
        return None
    rows = db.execute(
        "SELECT id, sender, accepted, expires, target FROM item WHERE request_id = ?"
        " AND workspace = ? AND source_device IS NULL",
        request_id,
        caller.workspace,
    )
    if not rows or (caller.type == "User" and rows[0][1] != caller.member):
        return None
    item, sender, accepted, expires, target = rows[0]
    return {
        "id": request_id,
        "sourceUserId": str(sender),
        "targetUserId": None if target is None else str(target),
        "accepted": float(accepted),
        "expires": None if expires is None else float(expires),
        "devices": device_standings(db, item),
    }


def device_standings(db: Db, item: int) -> list[dict[str, Any]]:
    rows = db.execute(
        "SELECT device.id, device.name, device.member, delivery.state, delivery.way,"
        f" delivery.ended, {WHY} FROM delivery JOIN device ON device.id = delivery.device"
        " WHERE delivery.item = ? ORDER BY device.id",
        item,
    )
    return [
        {
            "id": id_,
            "name": name,
            "userId": str(member),
            "state": STATES[state],
            "over": way,
            "ended": None if ended is None else float(ended),
            "reason": reason,
        }
        for id_, name, member, state, way, ended, reason in rows
    ]
