"""What the journal knows of items on the air: who has ours, and whether the hub has them."""

from __future__ import annotations

import sqlite3

from fieldagent.agent.journal import outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.package.package import Channel, Status


def holders(journal: Journal, sequence: int) -> set[int]:
    """The stations that have confirmed it on the air; in `receipt` they count below zero."""
    rows = journal.read("SELECT -by FROM receipt WHERE sequence = ? AND by < 0", sequence)
    return {number for (number,) in rows}


def has_confirmed(db: sqlite3.Connection, station: int, sequence: int) -> bool:
    rows = db.execute("SELECT 1 FROM receipt WHERE sequence = ? AND by = ?", (sequence, -station))
    return rows.fetchone() is not None


def delivered_lately(journal: Journal, *, since: float) -> set[int]:
    """Of the newest Packages those that another station has since that lived time."""
    rows = journal.read(
        "SELECT sequence FROM leg WHERE sequence > (SELECT coalesce(max(sequence), 0) FROM package)"
        " - 500 AND channel = ? AND status = 'Delivered' AND ended > ?",
        Channel.RADIO,
        since,
    )
    return {sequence for (sequence,) in rows}


def is_delivered_elsewhere(journal: Journal, sequence: int) -> bool:
    """Whether the hub has it, by a channel that leads there."""
    return any(
        leg.status is Status.DELIVERED and channel is not Channel.RADIO
        for channel, leg in outbound.legs(journal, sequence).items()
    )


def is_relayed(journal: Journal, sequence: int) -> bool:
    """Whether a neighbour has brought it to the hub."""
    rows = journal.read(
        "SELECT 1 FROM story WHERE sequence = ? AND channel = ? AND event = 'relayed'",
        sequence,
        Channel.RADIO,
    )
    return bool(rows)


def brought(db: sqlite3.Connection, origin: int, origin_sequence: int, digest: bytes) -> bool:
    """Whether the hub has this item of a neighbour's, by us; `digest` is how its own begins."""
    row = db.execute(
        "SELECT 1 FROM carried JOIN package USING (sequence) WHERE origin = ?"
        " AND origin_sequence = ? AND status = 'Delivered' AND substr(digest, 1, ?) = ?",
        (origin, origin_sequence, len(digest), digest),
    ).fetchone()
    return row is not None
