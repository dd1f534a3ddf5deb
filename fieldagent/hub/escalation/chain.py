"""The chain of a workspace: whom an incident is told to, step by step, until somebody answers.

A step is made of the contacts that have one `after`. It works as long as one of them does: what is
wrong is found before somebody is in distress, from the settings, from what the hub has, and from
the last try.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Any

from fieldagent.hub.escalation import contacts, notice
from fieldagent.hub.escalation.contacts import AlarmContact
from fieldagent.hub.escalation.contract import Own
from fieldagent.hub.escalation.known import Kinds, Reach
from fieldagent.hub.store.contract import Db
from fieldagent.system.span import span
from fieldagent.webhook.delivery import HandoverOutcome

Row = dict[str, Any]
NoteEnd = Callable[[AlarmContact, str], Awaitable[None]]
"""Stores why a contact was not told, or nothing where it was."""


def steps(db: Db, workspace: int, kinds: Kinds, own: Own) -> list[Row]:
    """Return the steps in their order: when each is told, who by, and whether it works."""
    rows = contacts.listing(db, workspace, kinds, own)
    return [
        _step(number, after, [*some])
        for number, (after, some) in enumerate(groupby(rows, lambda each: each["after"]), 1)
    ]


def _step(number: int, after: str, rows: Sequence[Row]) -> Row:
    works = any(not each["fault"] for each in rows)
    return {"step": number, "after": after, "works": works, "contacts": [*rows]}


def broken(db: Db, kinds: Kinds, own: Own) -> int:
    """Return how many steps of all workspaces cannot work."""
    workspaces = db.execute("SELECT DISTINCT workspace FROM alarm_contact")
    return sum(not each["works"] for (one,) in workspaces for each in steps(db, one, kinds, own))


async def test(recipients: Sequence[AlarmContact], reach: Reach, note_end: NoteEnd) -> list[Row]:
    """Tell each contact, step by step, that this is a test, without the waits between. Return how
    that went; it goes on behind a step that failed."""
    results = []
    for number, (after, some) in enumerate(groupby(recipients, lambda each: each.after), 1):
        for contact in some:
            marked = notice.test(contact.name, str(uuid.uuid4()), contact.language)
            result = await reach.tell(contact.kind, contact.address, marked)
            reason = "" if result.outcome is HandoverOutcome.HANDED else result.reason
            await note_end(contact, reason)
            results.append(
                {
                    "step": number,
                    "after": span(after),
                    "contact": contact.id,
                    "name": contact.name,
                    "handedOver": not reason,
                    "reason": reason,
                }
            )
    return results
