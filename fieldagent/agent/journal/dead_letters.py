"""Dead letters: messages for this kit that could not be used. They are kept as they arrived, up to
a maximum number and size.

A message that was paid for or confirmed must not be lost, so it is not only logged. If there are
too many dead letters, the oldest are deleted first.
"""

from __future__ import annotations

import sqlite3

from fieldagent.agent.journal.journal import Journal
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

LETTERS_MAX = 1_000
BYTES_MAX = 1 << 20
"""Maximum size of all dead letters together, in bytes."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An unusable message, exactly as it arrived over `channel`."""

    channel: str
    body: bytes
    reason: str
    """Reason why the message, or a part of it, could not be used, and the remedy if there is a
    known one."""
    received: float
    number: int = 0
    """Number of the dead letter in the journal, 1 or higher. 0 before it is stored."""


class Tally(NamedTuple):
    """Counts of dead letters."""

    came: int = 0
    """Number of dead letters that were stored since the journal was created."""
    dropped: int = 0
    """Number of dead letters that were deleted since then to make space for newer ones."""
    kept: int = 0
    """Number of dead letters in the journal now."""


def store_letter(db: sqlite3.Connection, letter: DeadLetter) -> int:
    """Store a dead letter, and return the number of older dead letters that were deleted to make
    space.
    """
    db.execute(
        "INSERT INTO dead_letter (channel, body, reason, received) VALUES (?, ?, ?, ?)",
        (letter.channel, letter.body, letter.reason, letter.received),
    )
    dropped = db.execute(
        "DELETE FROM dead_letter WHERE number IN (SELECT number FROM (SELECT number,"
        " row_number() OVER newest AS place, sum(length(body)) OVER newest AS size"
        " FROM dead_letter WINDOW newest AS (ORDER BY number DESC))"
        " WHERE place > ? OR size > ?)",
        (LETTERS_MAX, BYTES_MAX),
    ).rowcount
    db.execute(
        "INSERT INTO dead_letter_tally VALUES (1, 1, ?1) ON CONFLICT (one) DO UPDATE"
        " SET came = came + 1, dropped = dropped + ?1",
        (dropped,),
    )
    return dropped


def remove(db: sqlite3.Connection, letter_number: int) -> bool:
    """Remove a dead letter. Return False if it does not exist."""
    return db.execute("DELETE FROM dead_letter WHERE number = ?", (letter_number,)).rowcount > 0


def list_newest(journal: Journal, limit: int = LETTERS_MAX) -> list[DeadLetter]:
    """Return at most `limit` dead letters, newest first."""
    rows = journal.read(
        "SELECT channel, body, reason, received, number FROM dead_letter"
        " ORDER BY number DESC LIMIT ?",
        limit,
    )
    return [DeadLetter(*row) for row in rows]


def count_letters(journal: Journal) -> Tally:
    """Return the counts of stored, deleted and kept dead letters."""
    ((letter_count,),) = journal.read("SELECT count(*) FROM dead_letter")
    rows = journal.read("SELECT came, dropped FROM dead_letter_tally")
    arrived, dropped = rows[0] if rows else (0, 0)
    return Tally(arrived, dropped, letter_count)
