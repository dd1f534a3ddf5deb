"""Replaces correct code with program errors, each of which breaks a promise.

    python -m tests.simulation.broken NAME SEED...

It ends at the first seed that shows the broken promise, and prints it. If none does, it ends with
1. Only with PYTHONHASHSEED=0 does the randomness depend on the seed alone.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from fieldagent.agent.channels import satellite
from fieldagent.agent.journal import inbound, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.package.package import Channel
from tests.simulation.world import Violated, simulate


def _forgetful(*arguments: Any, **more: Any) -> bool:
    return True


async def _credulous(driver: Any, status: Any, momsn: int) -> Any:
    """Believe the modem's reply, whatever its numbers are."""
    return status.verdict


def _selfless(queue: ChannelQueue, *arguments: Any, **more: Any) -> Any:
    """Give each Package the same place in the queue."""
    add = queue._queue.add

    def level(key: int, **how: Any) -> Any:
        return add(key, **{**how, "priority": 1})

    with patch.object(queue._queue, "add", level):
        return _ADD(queue, *arguments, **more)


_ADD = ChannelQueue.add


def _unwritten(*arguments: Any, **more: Any) -> Callable[[Any], None]:
    return lambda db: None


def _added_up(journal: Journal, channel: Channel, sequence: int) -> bool:
    """Count the fragments of several stations as if one station had all."""
    rows = journal.read(
        "SELECT 1 FROM fragment_held WHERE sequence = ? AND channel = ?"
        " GROUP BY count HAVING count(DISTINCT position) = count",
        sequence,
        channel,
    )
    return bool(rows)


async def _kept(*arguments: Any) -> None:
    """Leave transmissions in flight after a driver failed."""


def _not_queued(*arguments: Any) -> None:
    """Accept a neighbour's item without sending it."""


class Broken(NamedTuple):
    owner: Any
    name: str
    by: Callable[..., Any]
    promise: str
    """Regular expression for the message about the broken promise."""
    seed: int
    """A seed that has shown the broken promise. If this seed no longer does, others are tried."""


BROKEN = {
    "mark_arrived": Broken(inbound, "mark_arrived", _forgetful, "reached the user twice", 0),
    # Another session's reply is believed: its "sent" is wrong, and its "not sent" is paid twice.
    "verdict": Broken(
        satellite.SatelliteDriver,
        "_judge_session",
        _credulous,
        "over Satellite, and is not there|paid for 2 times",
        5,
    ),
    "end": Broken(outbound, "record_ends", _unwritten, "has not ended", 0),
    "is_held_whole": Broken(
        outbound, "is_held_whole", _added_up, "Delivered over Radio, and is not there", 10
    ),
    "queue_relayed": Broken(
        Intake, "queue_relayed", _not_queued, "is not at the hub|still waits", 5
    ),
    "requeue_lost": Broken(ChannelOutbox, "requeue_lost", _kept, "has not ended|still waits", 12),
    "add": Broken(ChannelQueue, "add", _selfless, "waited behind|has not ended|still waits", 0),
}


def shows(broken: Broken, seed: int) -> bool:
    """Return True if this seed breaks that promise. Raises any other error."""
    with (
        tempfile.TemporaryDirectory(prefix="fieldagent-seed-") as home,
        patch.object(broken.owner, broken.name, broken.by),
    ):
        try:
            simulate(seed, Path(home))
        except (Violated, BaseExceptionGroup) as seen:
            if not any(re.search(broken.promise, violation) for violation in _said(seen)):
                raise
            return True
    return False


def _said(seen: BaseException) -> list[str]:
    """Return the broken promises."""
    if isinstance(seen, BaseExceptionGroup):
        return [violation for each in seen.exceptions for violation in _said(each)]
    return [str(seen)] if isinstance(seen, Violated) else []


if __name__ == "__main__":
    chosen = BROKEN[sys.argv[1]]
    seed = next((seed for seed in map(int, sys.argv[2:]) if shows(chosen, seed)), None)
    print(seed)
    sys.exit(seed is None)
