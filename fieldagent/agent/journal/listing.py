"""What is listed: what was sent, the newest first, and what waits, the oldest first."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from fieldagent.agent.journal.journal import Journal
from fieldagent.package.delivery import NOT_CONFIGURED
from fieldagent.package.forecast import PastLeg
from fieldagent.package.package import SOS_PRIORITY, Channel, Status
from fieldagent.system.lazy_named_tuple import NamedTuple

END = 2**63 - 1
"""The place before which everything is."""


class Listed(NamedTuple):
    sequence: int
    status: str | None


Batch = Sequence[Listed]


def newest(journal: Journal, before: int, limit: int) -> Batch:
    """List the newest Packages with a sequence lower than `before`, along the table's own key: as
    quick at the end of a long journal as at its beginning."""
    rows = journal.read(
        "SELECT sequence, status FROM package WHERE sequence < ? ORDER BY sequence DESC LIMIT ?",
        before,
        limit,
    )
    return [Listed(*row) for row in rows]


def transmissions(journal: Journal, sequences: Sequence[int]) -> dict[int, list[tuple[str, int]]]:
    """Return, of each Package, what each that left with something of it cost, in the words of its
    story, and how often."""
    costs: dict[int, list[tuple[str, int]]] = {sequence: [] for sequence in sequences}
    for sequence, detail, times in journal.read(
        "SELECT sequence, detail, times FROM story WHERE event = 'sent'"
        " AND sequence IN (SELECT value FROM json_each(?))",
        json.dumps(sequences),
    ):
        costs[sequence].append((detail, times))
    return costs


def past_legs(journal: Journal, channel: Channel, limit: int) -> list[PastLeg]:
    """Return how the newest Packages that were given to that channel went on it, the newest first:
    not an SOS, which goes before them all, and not one that had not begun there."""
    rows = journal.read(
        "SELECT accepted + begins, leg.ended, leg.status FROM leg JOIN package USING (sequence)"
        " WHERE channel = ? AND reason <> ? AND priority < ?"
        " AND accepted + begins <= ifnull(leg.ended, ?) ORDER BY leg.sequence DESC LIMIT ?",
        channel,
        NOT_CONFIGURED,
        SOS_PRIORITY,
        journal.clock.now(),
        limit,
    )
    date = journal.clock.date
    return [
        PastLeg(date(begun), None if ended is None else date(ended), status == Status.DELIVERED)
        for begun, ended, status in rows
    ]


def waiting_behind(
    journal: Journal, channels: Collection[Channel], after: int, limit: int
) -> list[int]:
    """List the sequences behind that one of what waits on any of these channels, oldest first."""
    # By the key of the table, in its order: the index has another.
    rows = journal.read(
        f"SELECT DISTINCT sequence FROM leg NOT INDEXED WHERE sequence > ? AND {_waits(channels)}"
        " ORDER BY sequence LIMIT ?",
        after,
        limit,
    )
    return [sequence for (sequence,) in rows]


async def count_waiting(journal: Journal, channels: Collection[Channel]) -> int:
    """Return how many Packages wait on any of these channels, each counted once."""
    rows = await journal.read_aside(
        f"SELECT count(DISTINCT sequence) FROM leg WHERE {_waits(channels)}"
    )
    return int(rows[0][0])


def _waits(channels: Collection[Channel]) -> str:
    names = ", ".join(f"'{channel}'" for channel in channels)
    return f"status IS NULL AND channel IN ({names})"
