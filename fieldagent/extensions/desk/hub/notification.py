"""Sends notifications of an SOS to contacts, and records the results in the timeline of the
incident.

One process claims a message and tries to send it until a service accepts it or someone has
answered. The timeline shows when the message was handed over, and when the first attempt failed.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial
from math import inf

import trio

from fieldagent.extensions.desk.hub import alarm_link, contacts, notice
from fieldagent.extensions.desk.hub.contacts import AlarmContact
from fieldagent.extensions.desk.hub.notice import AnswerOptions
from fieldagent.hub import idle
from fieldagent.hub.contact.contract import Notice
from fieldagent.hub.contact.registry import ContactSenders, Kinds, get_contact_kinds
from fieldagent.hub.records import alarm, claims, sos
from fieldagent.hub.records.alarm import ASKED, ESCALATED, REPLY
from fieldagent.hub.store.contract import ANY_WRITE_TOPIC, Db, Store, find_earliest
from fieldagent.hub.store.persist import persist, skip_if_unavailable
from fieldagent.store.group import StoreFailed
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.supervisor import Note, describe_error
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult
from fieldagent.webhook.schedule import SOS_SCHEDULE, compute_delay

log = logging.getLogger(__name__)

AT_ONCE = 16
"""Largest number of simultaneous messages in one process."""
CLAIM_S = 120.0
"""Seconds after which a message without a result is sent again."""


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification that this process may send now."""

    id: int
    sos: int
    contact: AlarmContact
    notice: Notice
    attempts: int
    claimed_until: float
    escalates: bool
    """True if the contact is notified because the SOS was unanswered for some time."""
    why: str = ""
    round: int = 1
    beside: tuple[Notification, ...] = ()
    """Notifications that waited for the same end of quiet hours. They are sent in the same
    message."""


def compute_next_due(db: Db) -> float:
    """Return the Unix time when the next notification is due or its claim expires."""
    return find_earliest(
        db,
        "SELECT min(CASE WHEN claimed_until > not_before THEN claimed_until ELSE not_before END)"
        " FROM alarm_message WHERE state = 'waiting'",
    )


def claim_notifications(
    db: Db, now: float, limit: int, desk: str, kinds: Kinds | None = None
) -> list[Notification]:
    """Claim at most `limit` due notifications for this process, and return them. `desk` is the
    console's address. `kinds` are the hub's kinds of contact.
    """
    kinds_by_name = get_contact_kinds() if kinds is None else kinds
    rows = db.execute(
        f"{_SELECT_DUE} AND held = 0 ORDER BY not_before, id LIMIT ?{db.skip_locked()}",
        now,
        now,
        limit,
    )
    alone = [_make_claimed(db, _DueRow(*row), now, desk, kinds_by_name) for row in rows]
    return [*alone, *_claim_together(db, now, limit - len(alone), desk, kinds_by_name)]


def release_claims(db: Db, notifications: Sequence[Notification]) -> None:
    """Release the claims of notifications that this process does not send now."""
    for notification in notifications:
        for each in (notification, *notification.beside):
            db.execute(
                "UPDATE alarm_message SET claimed_until = 0 WHERE id = ? AND state = 'waiting'"
                " AND claimed_until = ?",
                *(each.id, each.claimed_until),
            )
    if notifications:
        db.announce(alarm.ALARM_TOPIC)


_SELECT_DUE = (
    "SELECT id, sos, contact, message_id, why, attempts, round, text FROM alarm_message"
    " WHERE state = 'waiting' AND not_before <= ? AND claimed_until <= ?"
)


class _DueRow(NamedTuple):
    """A message that must be sent to a contact now, as `_SELECT_DUE` returns it."""

    id: int
    sos: int
    contact: int
    message_id: str
    why: str
    attempts: int
    round: int
    text: str


def _claim_together(db: Db, now: float, limit: int, desk: str, kinds: Kinds) -> list[Notification]:
    """Claim notifications that waited for the end of quiet hours. The same process claims all
    notifications of a contact.
    """
    notifications = []
    for (contact,) in db.execute(
        "SELECT DISTINCT contact FROM alarm_message WHERE state = 'waiting' AND held = 1"
        " AND not_before <= ? AND claimed_until <= ? ORDER BY contact LIMIT ?",
        *(now, now, limit),
    ):
        locked = f"SELECT 1 FROM alarm_contact WHERE id = ?{db.skip_locked()}"
        if not db.execute(locked, contact):
            continue
        rows = db.execute(
            f"{_SELECT_DUE} AND held = 1 AND contact = ? ORDER BY id", now, now, contact
        )
        claimed = [_make_claimed(db, _DueRow(*row), now, desk, kinds) for row in rows]
        if claimed:
            message = notice.combine_notices([each.notice for each in claimed])
            notifications.append(replace(claimed[0], notice=message, beside=tuple(claimed[1:])))
    return notifications


def _make_claimed(db: Db, row: _DueRow, now: float, desk: str, kinds: Kinds) -> Notification:
    id_, sos_id, contact_id, message_id, reason, attempts, round_, text = row
    until = now + CLAIM_S
    db.execute(
        "UPDATE alarm_message SET claimed_until = ?, claimed_by = ? WHERE id = ?",
        *(until, db.worker, id_),
    )
    ((workspace,),) = db.execute("SELECT workspace FROM sos WHERE id = ?", sos_id)
    contact = contacts.find_contact(db, workspace, contact_id)
    incident = sos.find_incident(db, workspace, sos_id)
    assert incident is not None, "its messages go with it"
    link = code = ""
    kind = kinds.get(contact.kind)
    if reason == REPLY:
        ((device,),) = db.execute("SELECT name FROM device WHERE id = ?", incident.device)
        message = notice.make_reply_notice(incident, device, message_id, text, contact.language)
    elif reason == ASKED:
        message = notice.make_request(
            db, incident, message_id, text, AnswerOptions(desk), contact.language
        )
    else:
        if kind is None or not kind.signs_in:
            link, code = alarm_link.make_link(db, sos_id, contact.name, message_id, now, contact.id)
        ways = AnswerOptions(desk, link, code)
        message = notice.make_notice(db, incident, message_id, reason, ways, contact.language)
    escalates = contact.after > 0 or reason == ESCALATED
    return Notification(id_, sos_id, contact, message, attempts, until, escalates, reason, round_)


def record_result(
    db: Db,
    notification: Notification,
    result: HandoverResult,
    now: float,
    kinds: Kinds | None = None,
) -> str:
    """Record the result of a message. Return a text for the log, or an empty string. If this
    process's claim has expired, the result is ignored, because another process has the claim.
    """
    chance, kinds_by_name = random.random(), get_contact_kinds() if kinds is None else kinds
    reports = [
        _store_result(db, each, result, now, kinds_by_name, chance=chance)
        for each in (notification, *notification.beside)
    ]
    return next(filter(None, reports), "")


def _store_result(
    db: Db,
    notification: Notification,
    result: HandoverResult,
    now: float,
    kinds: Kinds,
    *,
    chance: float,
) -> str:
    contact, attempts = notification.contact, notification.attempts + 1
    is_taken = result.outcome is HandoverOutcome.HANDED
    wait = compute_delay(
        attempts,
        schedule=SOS_SCHEDULE,
        retry_after=result.retry_after,
        random_share=chance,
    )
    state = "handed over" if is_taken else "waiting" if wait is not None else "failed"
    held = 0
    if state == "waiting" and notification.why not in (REPLY, ASKED):
        morning = alarm.find_quiet_end(db, notification.id, now + (wait or 0.0))
        wait, held = (wait, 0) if morning is None else (morning - now, 1)
    settled = db.execute(
        # Count a message that was handed over, even if someone has answered meanwhile. In that
        # case, do not send a failed message again.
        "UPDATE alarm_message SET state = CASE WHEN state = 'waiting' OR ? THEN ? ELSE state END,"
        " attempts = ?, not_before = ?, held = CASE held WHEN 0 THEN ? ELSE held END,"
        " claimed_until = 0 WHERE id = ? AND claimed_until = ? RETURNING state",
        *(
            is_taken,
            state,
            attempts,
            now + (wait or 0.0),
            held,
            notification.id,
            notification.claimed_until,
        ),
    )
    if not settled:
        return ""
    if settled[0][0] != "waiting":
        wait = None
    db.announce(alarm.ALARM_TOPIC)
    kind = kinds.get(contact.kind)
    receiver_text = f"{contact.name} ({kind.by if kind else contact.kind})"
    contacts.record_attempt(db, contact.id, "" if is_taken else result.reason, now)
    if is_taken:
        _note_taken(
            db,
            notification,
            f"{receiver_text}: handed over to {kind.service if kind else '?'}",
            now,
        )
        return ""
    if result.outcome is HandoverOutcome.GONE:
        contacts.delete_contact(db, contact.id)
        sos.record_event(
            db, notification.sos, "not notified", now, detail=f"{receiver_text}: {result.reason}"
        )
        return f"contact {contact.id} ({receiver_text}) is removed: {result.reason}"
    retry_text = "not tried again" if wait is None else f"tried again in {wait:.0f} s"
    text = f"{receiver_text}: {result.reason}; {retry_text}"
    if attempts == 1 or wait is None:
        sos.record_event(db, notification.sos, "not notified", now, detail=text)
    return f"contact {contact.id}: {text}"


def _note_taken(db: Db, notification: Notification, handed: str, now: float) -> None:
    contact = notification.contact
    if notification.why == REPLY:
        return
    if notification.round > 1:
        handed += f" (try {notification.round} of {contact.tries})"
    sos.record_event(
        db, notification.sos, "escalated" if contact.after else "notified", now, detail=handed
    )
    if contact.after:
        alarm.queue_escalation(db, notification.sos, now)
    if notification.why not in (ESCALATED, ASKED) and notification.round < contact.tries:
        alarm.queue_again(db, notification.id, notification.round + 1, contact.every, now)


async def run(
    store: Store,
    reach: ContactSenders,
    *,
    clock: Callable[[], float],
    note_fault: Note,
    desk: str,
) -> None:
    """Send due notifications until cancelled."""
    await _Notifications(store, reach, clock, note_fault, desk).run()


@dataclass(slots=True)
class _Notifications:
    store: Store
    reach: ContactSenders
    clock: Callable[[], float]
    note_fault: Note
    desk: str
    under_way: int = 0
    pause: trio.CancelScope = field(default_factory=trio.CancelScope)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                news, any_write = (
                    self.store.get_event(alarm.ALARM_TOPIC),
                    self.store.get_event(ANY_WRITE_TOPIC),
                )
                self.pause = trio.CancelScope()
                next_due = inf
                if free := AT_ONCE - self.under_way:
                    next_due, due = await self.list_due(free)
                    for each in due:
                        self.under_way += 1
                        nursery.start_soon(waits.run_to_the_end, partial(self.carry_out, each))
                with self.pause:
                    await idle.wait_until_due(any_write, next_due - self.clock(), news=news)

    async def list_due(self, free: int) -> tuple[float, list[Notification]]:
        """Return the Unix time when the next notification is due, and the notifications that this
        process has claimed. If the store is unavailable, return 0 and no notifications.
        """
        with skip_if_unavailable():
            next_due = await self.store.read(compute_next_due)
            if next_due > self.clock():
                return next_due, []
            return next_due, await claims.commit_claim(
                self.store,
                lambda db: claim_notifications(db, self.clock(), free, self.desk, self.reach.kinds),
                release_claims,
            )
        return 0.0, []

    async def carry_out(self, notification: Notification) -> None:
        """Send a notification. If the hub is killed before the result is stored, the hub sends the
        notification again with the same id.
        """
        try:
            result = await self.send(notification)
            text = await persist(
                self.store,
                lambda db: record_result(db, notification, result, self.clock(), self.reach.kinds),
            )
            if text:
                log.warning("%s", text)
        except StoreFailed:
            raise
        except Exception as error:
            self.note_fault(error, f"the end of a message to contact {notification.contact.id}")
        finally:
            self.under_way -= 1
            self.pause.cancel()

    async def send(self, notification: Notification) -> HandoverResult:
        contact = notification.contact
        try:
            return await self.reach.send_notice(contact.kind, contact.address, notification.notice)
        except Exception as error:
            # Count a bug in the hub as a failed attempt, so that the message is sent again.
            self.note_fault(error, f"a message to contact {contact.id}")
            reason = f"it failed in the hub; see its log: {describe_error(error)}"
            return HandoverResult(HandoverOutcome.FAILED, reason)
