"""Escalation chain of a workspace: the steps in which contacts are notified of an incident until
someone answers.

A step contains the contacts with the same `after`. A step works if at least one of its contacts
works. The hub finds faults before an emergency. It checks the settings, the installed modules and
the result of the last attempt.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Any

from fieldagent.extensions.desk.hub import contacts, notice
from fieldagent.extensions.desk.hub.contacts import AlarmContact
from fieldagent.hub.contact.contract import Own
from fieldagent.hub.contact.registry import ContactSenders, Kinds
from fieldagent.hub.store.contract import Db
from fieldagent.system.span import format_span
from fieldagent.webhook.delivery import HandoverOutcome

Row = dict[str, Any]
NoteEnd = Callable[[AlarmContact, str], Awaitable[None]]
"""Stores the reason why a contact was not notified, or an empty string if it was notified."""


def list_steps(db: Db, workspace: int, kinds: Kinds, settings: Own) -> list[Row]:
    """Return the steps in their order. Each has its time, its contacts, and True if the step
    works.
    """
    rows = contacts.list_alarm_contacts(db, workspace, kinds, settings)
    return [
        _make_step(number, after, [*step_contacts])
        for number, (after, step_contacts) in enumerate(
            groupby(rows, lambda each: each["after"]), 1
        )
    ]


def _make_step(number: int, after: str, rows: Sequence[Row]) -> Row:
    works = any(not each["fault"] for each in rows)
    return {"step": number, "after": after, "works": works, "contacts": [*rows]}


def count_broken(db: Db, kinds: Kinds, settings: Own) -> int:
    """Return the number of steps, in all workspaces, that do not work."""
    workspaces = db.execute("SELECT DISTINCT workspace FROM alarm_contact")
    return sum(
        not each["works"]
        for (workspace,) in workspaces
        for each in list_steps(db, workspace, kinds, settings)
    )


async def test_contacts(
    recipients: Sequence[tuple[AlarmContact, str]], reach: ContactSenders, note_end: NoteEnd
) -> list[Row]:
    """Send each contact a test, step by step without waiting, and return the results. If a step
    fails, the test continues.

    Each of `recipients` is a contact with the result of `sending.record_message_or_refuse`: the
    reason why the contact gets no test, or an empty string.
    """
    results = []
    for number, (after, step_contacts) in enumerate(
        groupby(recipients, lambda each: each[0].after), 1
    ):
        for contact, limit in step_contacts:
            reason = limit
            if not limit:
                marked = notice.make_test_notice(contact.name, str(uuid.uuid4()), contact.language)
                result = await reach.send_notice(contact.kind, contact.address, marked)
                reason = "" if result.outcome is HandoverOutcome.HANDED else result.reason
                await note_end(contact, reason)
            results.append(
                {
                    "step": number,
                    "after": format_span(after),
                    "contact": contact.id,
                    "name": contact.name,
                    "handedOver": not reason,
                    "reason": reason,
                }
            )
    return results
