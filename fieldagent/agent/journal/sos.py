"""Every SOS from its declaration until somebody has confirmed it, or its sender called it off."""

from __future__ import annotations

import sqlite3

from fieldagent.agent.journal.journal import Journal
from fieldagent.package.package import Channel


def declare(db: sqlite3.Connection, sequence: int) -> None:
    db.execute("INSERT INTO sos VALUES (?, 'declared')", (sequence,))


def confirm(db: sqlite3.Connection, sequence: int) -> None:
    """Somebody's agent has stored it."""
    db.execute("UPDATE sos SET state = 'confirmed' WHERE sequence = ?", (sequence,))


def call_off(db: sqlite3.Connection, sequences: list[int]) -> None:
    db.executemany(
        "UPDATE sos SET state = 'canceled' WHERE sequence = ? AND state = 'declared'",
        [(sequence,) for sequence in sequences],
    )


def declared(journal: Journal) -> list[int]:
    """The numbers of those that nobody has confirmed yet, oldest first."""
    rows = journal.read("SELECT sequence FROM sos WHERE state = 'declared' ORDER BY sequence")
    return [sequence for (sequence,) in rows]


def confirmed(journal: Journal, since: float) -> list[int]:
    """The numbers of those that somebody has confirmed first since that Unix time, oldest first."""
    rows = journal.read(
        "SELECT sos.sequence FROM sos JOIN receipt USING (sequence) WHERE state = 'confirmed'"
        " GROUP BY sos.sequence HAVING min(receipt.at) >= ? ORDER BY sos.sequence",
        since,
    )
    return [sequence for (sequence,) in rows]


def state(journal: Journal, sequence: int) -> str | None:
    """`declared`, `confirmed` or `canceled`; None where it is no SOS."""
    rows = journal.read("SELECT state FROM sos WHERE sequence = ?", sequence)
    return rows[0][0] if rows else None


def taken(journal: Journal) -> dict[tuple[int, Channel], float]:
    """Unconfirmed ones on each channel that took them, and when that was last heard of."""
    rows = journal.read(
        "SELECT leg.sequence, leg.channel, max(leg.ended, coalesce((SELECT max(story.at) FROM story"
        " WHERE story.sequence = leg.sequence AND story.channel = leg.channel), 0))"
        " FROM sos JOIN leg USING (sequence)"
        " WHERE sos.state = 'declared' AND leg.status = 'Delivered'"
        " ORDER BY leg.sequence, leg.channel"
    )
    return {(sequence, Channel(name)): at for sequence, name, at in rows}
