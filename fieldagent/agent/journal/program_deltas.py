"""Stores the program deltas that the hub has sent, until a command uses them."""

from __future__ import annotations

import sqlite3

from fieldagent.agent.journal.journal import Journal
from fieldagent.wire.signed_delta import compute_payload_digest

DELTAS_MAX = 2
"""Number of deltas that are kept. Usually a command uses the newest one."""


def store_delta(db: sqlite3.Connection, payload: bytes) -> None:
    """Store a complete delta, and keep only the DELTAS_MAX newest deltas."""
    db.execute(
        "INSERT OR REPLACE INTO program_delta (digest, payload) VALUES (?, ?)",
        (compute_payload_digest(payload), payload),
    )
    db.execute(
        "DELETE FROM program_delta WHERE number NOT IN"
        " (SELECT number FROM program_delta ORDER BY number DESC LIMIT ?)",
        (DELTAS_MAX,),
    )


def find_payload(journal: Journal, digest: bytes) -> bytes | None:
    """Return the payload of the delta with `digest`, or None if the delta is not stored."""
    rows = journal.read("SELECT payload FROM program_delta WHERE digest = ?", digest)
    return bytes(rows[0][0]) if rows else None


def is_stored(journal: Journal, digest: bytes) -> bool:
    """Return True if the delta with `digest` is stored."""
    return bool(journal.read("SELECT 1 FROM program_delta WHERE digest = ?", digest))
