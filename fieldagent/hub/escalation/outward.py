"""Sends items for an email address or telephone number to the service that delivers emails or SMS.

The hub knows only that the service has accepted the item, and reports only this to the sender.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from fieldagent.hub import idle
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.api import reading
from fieldagent.hub.contact.contract import Notice
from fieldagent.hub.contact.registry import ContactSenders, find_kind
from fieldagent.hub.records import claims, outward
from fieldagent.hub.records.outward import OutwardItem
from fieldagent.hub.store.contract import ANY_WRITE_TOPIC, Db, Store
from fieldagent.hub.store.persist import log_once, persist
from fieldagent.package.writing import format_clock_time
from fieldagent.system.supervisor import Note, describe_error
from fieldagent.system.wording import make_visible
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult
from fieldagent.webhook.schedule import SCHEDULE, compute_delay

log = logging.getLogger(__name__)

AT_ONCE = 1
"""Number of items that a process claims at once. If it claimed several items, the claim of the last
item could expire before the item is sent. Another process would then send the item too."""
NO_ANSWER = "Answers do not reach the sender."
DATA = "binary data cannot be sent to an address as text"


async def run(
    store: Store, reach: ContactSenders, *, clock: Callable[[], float], note_fault: Note
) -> None:
    """Send due items, one after the other, until cancelled."""
    while True:
        news, any_write = store.get_event(outward.OUTWARD_TOPIC), store.get_event(ANY_WRITE_TOPIC)
        next_due = clock()
        with log_once():
            next_due = await store.read(outward.compute_next_due)
            if next_due <= clock():
                claimed = await claims.commit_claim(
                    store,
                    lambda db: outward.claim_items(db, clock(), AT_ONCE),
                    outward.release_claims,
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
        await persist(store, lambda db: outward.mark_given_up(db, item, why, clock()))
        return
    notice = await store.read(lambda db: _make_notice(db, item, reach.is_answered(kind)))
    why = kind.missing(reach.own) or ("" if notice.text else DATA)
    if why:
        await persist(store, lambda db: outward.mark_given_up(db, item, why, clock()))
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
        outward.mark_accepted(db, item, service, now)
        return
    wait = compute_delay(
        item.attempts + 1,
        schedule=SCHEDULE,
        retry_after=result.retry_after,
        random_share=random.random(),
    )
    if wait is None or result.outcome is not HandoverOutcome.FAILED:
        outward.mark_given_up(db, item, result.reason, now)
        log.warning("item %d for an address is given up: %s", item.item, result.reason)
    else:
        outward.retry_at(db, item, now + wait)
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
