"""What this kit has asked the hub for: to raise the alarm where it hears nothing for so long."""

from __future__ import annotations

import sqlite3

from fieldagent.agent.journal.journal import Journal
from fieldagent.system.lazy_named_tuple import NamedTuple


class Asked(NamedTuple):
    """`at` and `heard` are lived time, `confirmed` is Unix time."""

    sequence: int
    within: int | None
    at: float
    confirmed: float | None
    """When the hub took it."""
    heard: float | None
    """When something of ours went to the hub last, of any kind."""


def note(db: sqlite3.Connection, sequence: int, within: int | None, now: float) -> None:
    """Write down what the hub is asked for, in place of what was asked before."""
    db.execute("REPLACE INTO check_in VALUES (1, ?, ?, ?, NULL, NULL)", (sequence, within, now))


def asked(journal: Journal) -> Asked | None:
    """Return what the hub was last asked for; None where nobody did."""
    rows = journal.read("SELECT sequence, within, at, confirmed, heard FROM check_in")
    return Asked(*rows[0]) if rows else None
