"""Lists the changes in the journal, in order. Triggers add each change to the list in the commit
that makes the change.

An entry contains only the subject of the change, and a reader then reads the subject's present
state. So a late reader sees correct data, and no reader needs a queue.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from fieldagent.agent.journal.journal import Journal
from fieldagent.system.lazy_named_tuple import NamedTuple

TOPICS = ("package", "inbound", "sos")
BATCH_SIZE = 100


class Change(NamedTuple):
    number: int
    topic: str
    subject: int
    """Sequence of a Package, or number of a payload or incident."""


def get_newest(journal: Journal) -> int:
    """Return the number of the last change."""
    ((number,),) = journal.read("SELECT max(number) FROM event")
    return int(number)


def get_oldest(journal: Journal) -> int:
    """Return the number before the oldest change that is still kept."""
    ((number,),) = journal.read("SELECT min(number) FROM event")
    return int(number) - 1


def is_known(journal: Journal, change_number: int) -> bool:
    """Return True if all changes after the change `change_number` are still kept."""
    ((first, last),) = journal.read("SELECT min(number), max(number) FROM event")
    return bool(first - 1 <= change_number <= last)


def list_since(
    journal: Journal, change_number: int, topics: Collection[str]
) -> tuple[list[Change], int]:
    """Return the next changes of `topics` after the change `change_number`, with each subject only
    once. Also return the number from which the next call continues.
    """
    last = get_newest(journal)
    rows = journal.read(
        "SELECT number, topic, subject FROM event WHERE number > ? AND number <= ?"
        " AND topic IN (SELECT value FROM json_each(?)) ORDER BY number LIMIT ?",
        change_number,
        last,
        json.dumps(sorted(topics)),
        BATCH_SIZE,
    )
    by_subject = {
        (topic, subject): Change(number, topic, subject) for number, topic, subject in rows
    }
    changes = sorted(by_subject.values())
    return changes, rows[-1][0] if len(rows) == BATCH_SIZE else last


def read_payload(journal: Journal, payload_number: int) -> Any:
    """Return the payload as JSON text, or None if it is no longer kept."""
    rows = journal.read("SELECT body FROM inbound WHERE number = ?", payload_number)
    return rows[0][0] if rows else None
