"""Brings down by radio what a person at the hub says of a neighbour's SOS.

This kit brought the SOS up, and its sender may have no other way: "seen" and "closed" come down the
way that it went. The proof in the word is of the sender's own key, so that this kit could not have
said it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from fieldagent.agent.inbound.incident_news import WordDown
from fieldagent.agent.journal import outbound
from fieldagent.agent.journal.records import Accepted
from fieldagent.agent.mesh.relay import enter
from fieldagent.agent.outbound.intake import Intake
from fieldagent.package.package import SOS_PRIORITY, Channel, Package
from fieldagent.wire.envelope import Entry, fingerprint

KEPT = 86_400.0
"""Seconds for which it is tried: who is out of earshot for longer asks the hub by another way."""
PRIORITY = SOS_PRIORITY - 1
"""After an SOS, before all else."""


class WordCarrier:
    """Puts words into the queue of the radio."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    def store(
        self, db: sqlite3.Connection, words: Sequence[WordDown], now: float
    ) -> list[Accepted]:
        """Enter those about incidents that this kit brought up. They go to `queue` once they are on
        disk. `now` is lived time."""
        return [
            _enter(db, each, now)
            for each in words
            if outbound.has_carried(db, each.word.station, each.word.incident)
        ]

    def queue(self, accepted: Sequence[Accepted]) -> None:
        for each in accepted:
            self._intake.queue_relayed(each)


def _enter(db: sqlite3.Connection, down: WordDown, now: float) -> Accepted:
    package = Package(down.word, channels=frozenset({Channel.RADIO}), priority=PRIORITY)
    identity = fingerprint(Entry(0, down.word, down.at))
    return enter(db, package, identity, now, now + KEPT, down.at)
