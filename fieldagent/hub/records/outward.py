"""Items for an email address or a telephone number. The hub hands these items over to a service."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from fieldagent.hub.records import ledger, sending
from fieldagent.hub.records.due_receipts import THE_HUB
from fieldagent.hub.store.contract import Db, find_earliest
from fieldagent.package.delivery import Stage
from fieldagent.system.lazy_named_tuple import NamedTuple

OUTWARD_TOPIC = "outward"
"""Topic that is announced when there is a new item."""
CLAIM_S = 120.0
"""Seconds after which an item without a result is handed over again."""
ITEMS_PER_DAY_MAX = 50
"""Largest number of such items of one device per day. The operator of the hub pays for each email
and SMS."""
TOO_MANY_REASON = (
    f"{ITEMS_PER_DAY_MAX} messages to addresses have been sent today, which is the limit"
)


class OutwardItem(NamedTuple):
    """An item that this process may hand over now."""

    id: int
    item: int
    address: str
    text: str
    """Reply to the person who answered the item; empty if the item itself is sent."""
    message_id: str
    attempts: int
    claimed_until: float


def enter_outward_item(db: Db, item: int, address: str, now: float) -> str:
    """Queue an item for delivery to an address. Return the reason why it cannot be sent, or an
    empty string.
    """
    ((today,),) = db.execute(
        "SELECT count(*) FROM outward JOIN item ON item.id = item WHERE accepted > ?"
        " AND outward.text = ''"
        " AND source_device = (SELECT source_device FROM item WHERE id = ?)",
        *(now - 86_400, item),
    )
    if today >= ITEMS_PER_DAY_MAX:
        return TOO_MANY_REASON
    ((workspace,),) = db.execute("SELECT workspace FROM item WHERE id = ?", item)
    if limit := sending.record_message_or_refuse(db, workspace, address, sending.LETTER, now):
        return limit
    queue_reply(db, item, address, "", now)
    return ""


def queue_reply(db: Db, item: int, address: str, text: str, now: float) -> None:
    """Queue a reply to the person who answered an item."""
    db.execute(
        "INSERT INTO outward (item, address, text, message_id, state, not_before)"
        " VALUES (?, ?, ?, ?, 'waiting', ?)",
        *(item, address, text, str(uuid.uuid4()), now),
    )
    db.announce(OUTWARD_TOPIC)


def compute_next_due(db: Db) -> float:
    """Return the Unix time when the next item is due or its claim expires."""
    return find_earliest(
        db,
        "SELECT min(CASE WHEN claimed_until > not_before THEN claimed_until ELSE not_before END)"
        " FROM outward WHERE state = 'waiting'",
    )


def claim_items(db: Db, now: float, limit: int) -> list[OutwardItem]:
    """Claim at most `limit` due items for this process, and return them."""
    rows = db.execute(
        "SELECT id, item, address, text, message_id, attempts FROM outward WHERE state = 'waiting'"
        f" AND not_before <= ? AND claimed_until <= ? ORDER BY not_before, id LIMIT ?"
        f"{db.skip_locked()}",
        *(now, now, limit),
    )
    until = now + CLAIM_S
    for id_, *_ in rows:
        db.execute(
            "UPDATE outward SET claimed_until = ?, claimed_by = ? WHERE id = ?",
            *(until, db.worker, id_),
        )
    return [OutwardItem._make((*row, until)) for row in rows]


def release_claims(db: Db, items: Sequence[OutwardItem]) -> None:
    """Release the claims of items that this process does not hand over now."""
    for each in items:
        db.execute(
            "UPDATE outward SET claimed_until = 0 WHERE id = ? AND state = 'waiting'"
            " AND claimed_until = ?",
            *(each.id, each.claimed_until),
        )


def mark_accepted(db: Db, item: OutwardItem, service: str, now: float) -> None:
    """Record that a service has accepted the item. The item may not have reached a person yet."""
    if _store_item_state(db, item, "handed over", now) and not item.text:
        ledger.record_stage(db, item.item, THE_HUB, Stage.HANDED_OVER, service, now)


def retry_at(db: Db, item: OutwardItem, at: float) -> None:
    """Schedule the next attempt to send an item for the Unix time `at`."""
    _store_item_state(db, item, "waiting", at)


def mark_given_up(db: Db, item: OutwardItem, reason: str, now: float) -> None:
    """Record that the hub does not try to send an item again. The item's delivery status shows
    `reason`.
    """
    if _store_item_state(db, item, "failed", now) and not item.text:
        ledger.record_stage(db, item.item, THE_HUB, Stage.NOBODY, reason, now)


def _store_item_state(db: Db, item: OutwardItem, state: str, not_before: float) -> bool:
    """Store the new state of an item and release its claim. Return False if the claim has expired
    and another process may have the item.
    """
    return bool(
        db.execute(
            "UPDATE outward SET state = ?, attempts = ?, not_before = ?, claimed_until = 0"
            " WHERE id = ? AND state = 'waiting' AND claimed_until = ? RETURNING id",
            *(state, item.attempts + 1, not_before, item.id, item.claimed_until),
        )
    )
