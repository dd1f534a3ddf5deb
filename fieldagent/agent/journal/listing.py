"""What was sent, the newest first, whatever became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fieldagent.agent.journal.journal import Journal

END = 2**63 - 1
"""The place before which everything is."""


class Listed(NamedTuple):
    sequence: int
    status: str | None


Batch = Sequence[Listed]


def newest(journal: Journal, before: int, limit: int) -> Batch:
    """Along the table's own key: as quick at the end of a long journal as at its beginning."""
    rows = journal.read(
        "SELECT sequence, status FROM package WHERE sequence < ? ORDER BY sequence DESC LIMIT ?",
        before,
        limit,
    )
    return [Listed(*row) for row in rows]


def transmissions(journal: Journal, sequence: int) -> list[tuple[str, int]]:
    """What each that left with something of it cost, in the words of its story, and how often."""
    return [
        (detail, times)
        for detail, times in journal.read(
            "SELECT detail, times FROM story WHERE sequence = ? AND event = 'sent'", sequence
        )
    ]
