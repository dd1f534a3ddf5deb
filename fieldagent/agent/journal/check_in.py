"""Stores the kit's check-in request: the hub must raise an alarm if the kit sends nothing for a
given time.
"""

from __future__ import annotations

import sqlite3

from fieldagent.agent.journal.journal import Journal
from fieldagent.system.lazy_named_tuple import NamedTuple


class CheckInRequest(NamedTuple):
    """The kit's last check-in request to the hub. `at` and `heard` are elapsed time, `confirmed` is
    Unix time.
    """

    sequence: int
    within_s: int | None
    at: float
    confirmed: float | None
    """Unix time when the hub confirmed the request. None if the hub has not confirmed it."""
    heard: float | None
    """Time when this kit last sent anything to the hub."""


def store_request(db: sqlite3.Connection, sequence: int, limit_s: int | None, now: float) -> None:
    """Store a check-in request in place of the previous request."""
    db.execute("REPLACE INTO check_in VALUES (1, ?, ?, ?, NULL, NULL)", (sequence, limit_s, now))


def read_last_request(journal: Journal) -> CheckInRequest | None:
    """Return the kit's last check-in request, or None if the kit has never made a request."""
    rows = journal.read("SELECT sequence, within, at, confirmed, heard FROM check_in")
    return CheckInRequest(*rows[0]) if rows else None
