"""Queue of items for an email address or a telephone number, and the task that passes these items
to a service for emails or SMS.

The hub knows only that the service has accepted the item, and reports only this to the sender.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable, Sequence

from fieldagent.extensions.desk.hub.contacts import find_kind
from fieldagent.hub import idle
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.api import reading
from fieldagent.hub.contact.contract import Notice
from fieldagent.hub.contact.registry import ContactSenders
from fieldagent.hub.records import claims, ledger, sending
from fieldagent.hub.records.due_receipts import THE_HUB
from fieldagent.hub.store.contract import ANY_WRITE_TOPIC, Db, Store, find_earliest
from fieldagent.hub.store.persist import persist, skip_if_unavailable
from fieldagent.package.delivery import Stage
from fieldagent.package.writing import format_clock_time
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.supervisor import Note, describe_error
from fieldagent.system.wording import make_visible
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult
from fieldagent.webhook.schedule import SCHEDULE, compute_delay

log = logging.getLogger(__name__)

OUTWARD_TOPIC = claims.CLAIMED_TABLES["outward"]
"""Topic that is announced when there is a new item."""
CLAIM_S = 120.0
"""Seconds after which an item without a result is handed over again."""
ITEMS_PER_DAY_MAX = 50
"""Largest number of such items of one device per day. The operator of the hub pays for each email
and SMS."""
TOO_MANY_REASON = (
    f"{ITEMS_PER_DAY_MAX} messages to addresses have been sent today, which is the limit"
)
AT_ONCE = 1
"""Number of items that a process claims at once. If it claimed several items, the claim of the last
item could expire before the item is sent. Another process would then send the item too."""
NO_ANSWER = "Answers do not reach the sender."
DATA = "binary data cannot be sent to an address as text"


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


def add_outward_item(db: Db, item: int, address: str, now: float) -> str:
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
    queue_message(db, item, address, "", now)
    return ""


def queue_message(db: Db, item: int, address: str, text: str, now: float) -> None:
    """Queue a message to an address. If `text` is empty, the message is the item itself. Otherwise
    it is a reply to the person who answered the item.
    """
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


async def run(
    store: Store, reach: ContactSenders, *, clock: Callable[[], float], note_fault: Note
) -> None:
    """Send due items, one after the other, until cancelled."""
    while True:
        news, any_write = store.get_event(OUTWARD_TOPIC), store.get_event(ANY_WRITE_TOPIC)
        next_due = clock()
        with skip_if_unavailable():
            next_due = await store.read(compute_next_due)
            if next_due <= clock():
                claimed = await claims.commit_claim(
                    store,
                    lambda db: claim_items(db, clock(), AT_ONCE),
                    release_claims,
                )
                for each in claimed:
                    await _send_item(store, reach, each, clock, note_fault)
                continue
        await idle.wait_until_due(any_write, next_due - clock(), news=news)


async def _send_item(
    store: Store,
    reach: ContactSenders,
    item: OutwardItem,
    clock: Callable[[], float],
    note_fault: Note,
) -> None:
    try:
        kind = find_kind(item.address, reach.kinds, reach.own)
    except Refused:
        why = "the address is neither an e-mail address nor a telephone number"
        await persist(store, lambda db: mark_given_up(db, item, why, clock()))
        return
    notice = await store.read(lambda db: _make_notice(db, item, reach.is_answered(kind)))
    why = kind.missing(reach.own) or ("" if notice.text else DATA)
    if why:
        await persist(store, lambda db: mark_given_up(db, item, why, clock()))
        return
    try:
        result = await reach.send_notice(kind.name, item.address, notice)
    except Exception as error:
        note_fault(error, f"a message to an address, item {item.item}")
        reason = f"it failed in the hub; see its log: {describe_error(error)}"
        result = HandoverResult(HandoverOutcome.FAILED, reason)
    await persist(store, lambda db: _record_result(db, item, kind.service, result, clock()))


def _record_result(
    db: Db, item: OutwardItem, service: str, result: HandoverResult, now: float
) -> None:
    if result.outcome is HandoverOutcome.HANDED:
        mark_accepted(db, item, service, now)
        return
    wait = compute_delay(
        item.attempts + 1,
        schedule=SCHEDULE,
        retry_after=result.retry_after,
        random_share=random.random(),
    )
    if wait is None or result.outcome is not HandoverOutcome.FAILED:
        mark_given_up(db, item, result.reason, now)
        log.warning("item %d for an address is given up: %s", item.item, result.reason)
    else:
        retry_at(db, item, now + wait)
        log.warning("item %d for an address waits %.0f s: %s", item.item, wait, result.reason)


def _make_notice(db: Db, outward_item: OutwardItem, answers: bool) -> Notice:
    """Return the email or SMS as plain text. The text is empty if the item has no text. `answers`
    is True if the kit receives the answers.
    """
    (item,) = reading.list_items(db, [outward_item.item])
    event, sender = item.encode()["event"], make_visible(item.sender.name)
    subject = f"Message from {sender}"
    if outward_item.text:
        return Notice(outward_item.message_id, f"Re: {subject}", outward_item.text, answers=answers)
    lines = [
        make_visible(str(event[name])) for name in ("content", "name", "notes") if event.get(name)
    ]
    if "latitude" in event:
        map_query = f"mlat={event['latitude']}&mlon={event['longitude']}"
        lines.append(f"https://www.openstreetmap.org/?{map_query}")
    instructions = f"Short answers reach {sender}." if answers else NO_ANSWER
    text = (
        "\n".join([f"{sender}, {format_clock_time(item.accepted)}:", *lines, instructions])
        if lines
        else ""
    )
    return Notice(outward_item.message_id, subject, text, answers=answers)
