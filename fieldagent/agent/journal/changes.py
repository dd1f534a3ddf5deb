"""What changed in the journal, in order: the tables' triggers write it in the same commit.

Only that something changed is kept, and how it stands now is read from where it stands. So what is
told late is true, and none of those who watch has a queue of their own.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from fieldagent.agent.journal.journal import Journal
from fieldagent.system.lazy_named_tuple import NamedTuple

TOPICS = ("package", "inbound", "sos")
AT_ONCE = 100


class Change(NamedTuple):
    number: int
    topic: str
    subject: int
    """The sequence of a Package, or the number of what came in."""


def newest(journal: Journal) -> int:
    """Return the number of the last event that was written; they begin at 1."""
    ((number,),) = journal.read("SELECT max(number) FROM event")
    return int(number)


def oldest(journal: Journal) -> int:
    """Return the place before all that is kept."""
    ((number,),) = journal.read("SELECT min(number) FROM event")
    return int(number) - 1


def is_known(journal: Journal, place: int) -> bool:
    """Return whether all that came after that place is still there."""
    ((first, last),) = journal.read("SELECT min(number), max(number) FROM event")
    return bool(first - 1 <= place <= last)


def since(journal: Journal, place: int, topics: Collection[str]) -> tuple[list[Change], int]:
    """Return the next changes of these topics behind that place, each subject once; and the place
    behind them."""
    last = newest(journal)
    rows = journal.read(
        "SELECT number, topic, subject FROM event WHERE number > ? AND number <= ?"
        " AND topic IN (SELECT value FROM json_each(?)) ORDER BY number LIMIT ?",
        place,
        last,
        json.dumps(sorted(topics)),
        AT_ONCE,
    )
    by_subject = {
        (topic, subject): Change(number, topic, subject) for number, topic, subject in rows
    }
    changes = sorted(by_subject.values())
    return changes, rows[-1][0] if len(rows) == AT_ONCE else last


def payload(journal: Journal, number: int) -> Any:
    """Return what came in, as JSON text; None where it is not kept any more."""
    rows = journal.read("SELECT body FROM inbound WHERE number = ?", number)
    return rows[0][0] if rows else None
