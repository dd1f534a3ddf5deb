"""Messages with which the hub notifies people of an SOS, in addition to the console.

1. When an SOS is raised, each contact of its workspace gets a message after the contact's delay. An
   answer cancels the messages that were not sent yet.
2. A browser in which a dispatcher has switched on the alarm is notified at once, and again at each
   escalation.
3. A contact can be notified several times. A contact is notified of all incidents, only of SOS
   calls, or only of the hub's own alarms (`about`). Contacts with the same `after` are one step of
   the workspace's chain.
4. In a contact's quiet hours, only SOS calls and overdue check-ins are sent. All other messages
   wait until the quiet hours end (`quiet`).
5. A dispatcher may be reachable by an open console, by the alarm in a browser, or by a contact
   without a delay. If none is, the hub notifies all later contacts and webhooks at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from math import inf

from fieldagent.hub.records import quiet, sos
from fieldagent.hub.store.contract import Db, insert
from fieldagent.system.wording import format_count

ALARM_TOPIC = "alarm messages"
"""Topic that is announced when a message to a contact or browser may be due."""
PUSH = "push"
"""Kind of a contact that is a dispatcher's browser."""
ITEM = 2
"""Value of `item.sos` for an alarm. The value for an SOS is 1."""
FIRST_MESSAGE_DELAY_S = 2.0
"""Seconds before the first message. The text and the position of an SOS arrive one after the other,
and one message should contain both."""
RAISED, ESCALATED, AGAIN = "raised", "escalated", "again"
REPLY, ASKED = "reply", "asked"
"""Reasons for a message. REPLY: an answer to a contact's reply. ASKED: a dispatcher is asked to
take over an SOS."""
INCIDENT_KINDS = ("all", "sos", "alarms")
"""Values of `about`: the incidents that a contact is notified of. "alarms" are incidents that the
hub itself raises."""

MAY_ANSWER = (
    "EXISTS (SELECT 1 FROM membership JOIN member ON member.id = membership.member"
    " WHERE membership.member = {0}.member AND membership.workspace = {0}.workspace"
    " AND role IN ('dispatcher', 'administrator') AND disabled IS NULL)"
)
"""SQL condition: the member of a row may answer an SOS. `{0}` is the name of a table with the
columns `member` and `workspace`."""
_IN_USE = f"(kind <> '{PUSH}' OR {MAY_ANSWER.format('alarm_contact')})"
_IS_NOTIFIED = "(about = 'all' OR about = CASE WHEN ? = 'sos' THEN 'sos' ELSE 'alarms' END)"
"""SQL condition on a contact: the contact wants to be notified of this kind of incident."""


def queue_first_messages(db: Db, id_: int, now: float) -> None:
    """Queue the messages to the contacts for an SOS that was just raised or opened again. Earlier
    messages and links about the SOS become invalid. If no dispatcher is reachable, all contacts and
    webhooks are notified immediately.
    """
    db.execute("UPDATE sos SET unreached = NULL WHERE id = ?", id_)
    cancel_messages(db, id_)
    db.execute("UPDATE alarm_link SET expires = ? WHERE sos = ? AND expires > ?", now, id_, now)
    _queue_notifications(db, id_, RAISED, now)
    ((workspace, kind),) = db.execute("SELECT workspace, kind FROM sos WHERE id = ?", id_)
    if compute_reachable_until(db, workspace, kind) <= now:
        _notify_everybody(db, id_, now)


def queue_escalation(db: Db, id_: int, now: float) -> None:
    """Queue another push notification to the dispatchers' browsers if the SOS is still unanswered.
    Called when the next contact is notified.
    """
    if not db.execute("SELECT 1 FROM sos WHERE id = ? AND state = 'open'", id_):
        return
    _queue_notifications(db, id_, ESCALATED, now, f" AND kind = '{PUSH}'")


def cancel_messages(db: Db, id_: int) -> None:
    """Cancel the waiting messages about an SOS, except the responses to contacts' replies. Called
    when a person has answered.
    """
    db.execute(
        "UPDATE alarm_message SET state = 'not needed' WHERE sos = ? AND state = 'waiting'"
        " AND why <> ?",
        *(id_, REPLY),
    )


def _queue_notifications(db: Db, id_: int, reason: str, now: float, condition: str = "") -> None:
    ((kind, of_all),) = db.execute(
        "SELECT kind, quiet FROM sos JOIN workspace ON workspace.id = workspace WHERE sos.id = ?",
        id_,
    )
    contacts = db.execute(
        "SELECT id, wait, quiet FROM alarm_contact WHERE workspace ="
        f" (SELECT workspace FROM sos WHERE id = ?) AND {_IN_USE}{condition}"
        f" AND {_IS_NOTIFIED.replace('?', '(SELECT sos.kind FROM sos WHERE sos.id = ?)')} ORDER"
        " BY id",
        *(id_, id_),
    )
    columns = ("sos", "contact", "message_id", "why", "state", "not_before", "held")
    rows = []
    for contact, wait, own in contacts:
        wait = max(wait, FIRST_MESSAGE_DELAY_S)
        morning = quiet.find_quiet_end(own, of_all, kind, now + wait)
        at = now + wait if morning is None else morning + wait
        is_held = int(morning is not None)
        rows.append((id_, contact, str(uuid.uuid4()), reason, "waiting", at, is_held))
    insert(db, "alarm_message", columns, rows)
    db.announce(ALARM_TOPIC)


def queue_again(db: Db, message: int, round_: int, interval_s: int, now: float) -> None:
    """Queue notification number `round_` for the contact of `message`, who has not answered. The
    notification is due after `interval_s` seconds, or after the contact's quiet hours. Queue
    nothing if the incident is not open.
    """
    at = now + interval_s
    morning = find_quiet_end(db, message, at)
    new_state = "held" if morning is None else "1"
    db.execute(
        "INSERT INTO alarm_message (sos, contact, message_id, why, state, not_before, round, held)"
        f" SELECT sos, contact, ?, ?, 'waiting', ?, ?, {new_state} FROM alarm_message WHERE id = ?"
        " AND EXISTS (SELECT 1 FROM sos WHERE sos.id = alarm_message.sos AND state = 'open')",
        *(str(uuid.uuid4()), AGAIN, at if morning is None else morning, round_, message),
    )
    db.announce(ALARM_TOPIC)


def find_quiet_end(db: Db, message: int, at: float) -> float | None:
    """Return the Unix time when the contact's quiet hours end, for a message that is due at `at`.
    Return None if `at` is not within the quiet hours.
    """
    for own, of_all, kind in db.execute(
        "SELECT alarm_contact.quiet, workspace.quiet, sos.kind FROM alarm_message"
        " JOIN sos ON sos.id = alarm_message.sos JOIN workspace ON workspace.id = sos.workspace"
        " JOIN alarm_contact ON alarm_contact.id = contact WHERE alarm_message.id = ?",
        message,
    ):
        return quiet.find_quiet_end(own, of_all, kind, at)
    return None


def queue_reply(db: Db, sos_id: int, contact: int, text: str, now: float) -> None:
    """Queue the hub's response to a contact's reply."""
    _queue_step(db, sos_id, [contact], REPLY, text, now)


def notify_next_dispatcher(db: Db, sos_id: int, member: int, text: str, now: float) -> None:
    """Send a push notification to the browsers of the dispatcher who is asked to take over the
    SOS.
    """
    rows = db.execute(
        "SELECT alarm_contact.id FROM alarm_contact JOIN sos ON sos.id = ?"
        " WHERE alarm_contact.workspace = sos.workspace AND alarm_contact.member = ?"
        f" AND alarm_contact.kind = '{PUSH}' ORDER BY 1",
        *(sos_id, member),
    )
    _queue_step(db, sos_id, [contact for (contact,) in rows], ASKED, text, now)


def _queue_step(
    db: Db, sos_id: int, contacts: Sequence[int], reason: str, text: str, now: float
) -> None:
    columns = ("sos", "contact", "message_id", "why", "state", "not_before", "text")
    rows = [(sos_id, each, str(uuid.uuid4()), reason, "waiting", now, text) for each in contacts]
    insert(db, "alarm_message", columns, rows)
    db.announce(ALARM_TOPIC)


def compute_reachable_until(db: Db, workspace: int, kind: str) -> float:
    """Return the Unix time until which a dispatcher is known to be reachable. Return infinity if
    the workspace has a contact that is notified immediately, or 0 if no console was open.
    """
    rows = db.execute(
        f"SELECT 1 FROM alarm_contact WHERE workspace = ? AND wait = 0 AND failing_since IS NULL"
        f" AND {_IN_USE} AND {_IS_NOTIFIED} LIMIT 1",
        *(workspace, kind),
    )
    if rows:
        return inf
    ((until,),) = db.execute(
        "SELECT max(CASE WHEN console_stream.until IS NULL THEN process.until"
        " WHEN console_stream.until < process.until THEN console_stream.until"
        " ELSE process.until END) FROM console_stream JOIN process"
        " ON process.name = console_stream.process WHERE console_stream.workspace = ?"
        f" AND {MAY_ANSWER.format('console_stream')}",
        workspace,
    )
    return 0.0 if until is None else float(until)


_SELECT_UNREACHED = "SELECT id, workspace, kind FROM sos WHERE state = 'open' AND unreached IS NULL"


def notify_of_open(db: Db, now: float) -> list[str]:
    """Notify all contacts and webhooks of each open SOS that no dispatcher can see any more. Return
    no log lines, because the incident log contains the notifications.
    """
    for id_, workspace, kind in db.execute(f"{_SELECT_UNREACHED} ORDER BY id{db.skip_locked()}"):
        if compute_reachable_until(db, workspace, kind) <= now:
            _notify_everybody(db, id_, now)
    return []


def compute_next_look(db: Db) -> float:
    """Return the earliest Unix time when `notify_of_open` may have to notify, as far as is known
    now.
    """
    kinds = {(workspace, kind) for _, workspace, kind in db.execute(_SELECT_UNREACHED)}
    return min((compute_reachable_until(db, *each) for each in kinds), default=inf)


def compute_next_mark(db: Db) -> float:
    """Return 0 if `mark_contacts` has to mark a contact, otherwise infinity."""
    rows = db.execute("SELECT 1 FROM alarm_contact WHERE failing_since IS NULL LIMIT 1")
    return 0.0 if rows else inf


def mark_contacts(db: Db, now: float) -> list[str]:
    """Mark all contacts as failing, because this hub cannot notify contacts. Such contacts do not
    count as reachable. Return the log line.
    """
    rows = db.execute(
        "UPDATE alarm_contact SET failing_since = ? WHERE failing_since IS NULL RETURNING id", now
    )
    count = format_count(len(rows), "contact")
    return [f"{count} cannot be notified of an SOS, because this program has no extension for them"]


def _notify_everybody(db: Db, id_: int, now: float) -> None:
    soon = now + FIRST_MESSAGE_DELAY_S
    db.execute("UPDATE sos SET unreached = ? WHERE id = ?", now, id_)
    waiting = db.execute(
        "SELECT id FROM alarm_message WHERE sos = ? AND state = 'waiting' AND not_before > ?"
        " AND round = 1 AND held = 0",
        *(id_, soon),
    )
    later_messages = [
        message for (message,) in waiting if find_quiet_end(db, message, soon) is None
    ]
    for each in later_messages:
        db.execute("UPDATE alarm_message SET not_before = ? WHERE id = ?", soon, each)
    db.execute(
        "UPDATE webhook_delivery SET not_before = ? WHERE state = 'waiting' AND not_before > ?"
        " AND attempts = 0 AND webhook IN (SELECT id FROM webhook WHERE after > 0)"
        " AND item = (SELECT item FROM sos WHERE id = ?)",
        *(soon, soon, id_),
    )
    detail = (
        f"{len(later_messages)} contacts of later steps are notified now" if later_messages else ""
    )
    sos.record_event(db, id_, "nobody reached", now, detail=detail)
    for topic in (ALARM_TOPIC, "webhooks"):
        db.announce(topic)
