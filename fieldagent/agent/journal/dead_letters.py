"""Messages for this kit that nobody could use: kept as they came, within bounds.

What was paid for or confirmed is never only logged. The oldest go first.
"""

from __future__ import annotations

import sqlite3

from fieldagent.agent.journal.journal import Journal
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

COUNT_MAX = 1_000
BYTES_MAX = 1 << 20
"""What is kept at most, of both."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message as it came over `channel`."""

    channel: str
    body: bytes
    reason: str
    """Why nobody could use it, or not all of it, and where known what to do."""
    received: float
    number: int = 0
    """In the journal, from 1."""


class Tally(NamedTuple):
    """How many there were since the journal began."""

    came: int = 0
    dropped: int = 0
    """To make room for newer ones."""
    kept: int = 0


def keep(db: sqlite3.Connection, letter: DeadLetter) -> int:
    """Return how many older ones had to go for it."""
    db.execute(
        "INSERT INTO dead_letter (channel, body, reason, received) VALUES (?, ?, ?, ?)",
        (letter.channel, letter.body, letter.reason, letter.received),
    )
    dropped = db.execute(
        "DELETE FROM dead_letter WHERE number IN (SELECT number FROM (SELECT number,"
        " row_number() OVER newest AS place, sum(length(body)) OVER newest AS size"
        " FROM dead_letter WINDOW newest AS (ORDER BY number DESC))"
        " WHERE place > ? OR size > ?)",
        (COUNT_MAX, BYTES_MAX),
    ).rowcount
    db.execute(
        "INSERT INTO dead_letter_tally VALUES (1, 1, ?1) ON CONFLICT (one) DO UPDATE"
        " SET came = came + 1, dropped = dropped + ?1",
        (dropped,),
    )
    return dropped


def remove(db: sqlite3.Connection, number: int) -> bool:
    """Remove a dead letter; False where it is not there any more."""
    return db.execute("DELETE FROM dead_letter WHERE number = ?", (number,)).rowcount > 0


def listing(journal: Journal, limit: int = COUNT_MAX) -> list[DeadLetter]:
    """List the dead letters, the newest first."""
    rows = journal.read(
        "SELECT channel, body, reason, received, number FROM dead_letter"
        " ORDER BY number DESC LIMIT ?",
        limit,
    )
    return [DeadLetter(*row) for row in rows]


def tally(journal: Journal) -> Tally:
    """Return how many dead letters came and how many were dropped to make room, both since the
    journal began, and how many are kept."""
    ((kept,),) = journal.read("SELECT count(*) FROM dead_letter")
    rows = journal.read("SELECT came, dropped FROM dead_letter_tally")
    came, dropped = rows[0] if rows else (0, 0)
    return Tally(came, dropped, kept)
