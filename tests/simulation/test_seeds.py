"""Many seeds of weeks in the field; and that each promise would be seen to break."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import trio

from fieldagent.agent import agent as shipped
from fieldagent.agent.channels import satellite
from fieldagent.agent.journal import inbound, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.package.package import Channel
from tests.processes import started
from tests.simulation.world import CALM, DAY, DAYS, WITH_CHANCE, Violated, simulate

SEEDS = int(os.environ.get("FIELDAGENT_SEEDS", "40"))
MEMORY = Path("/dev/shm")


def environment() -> dict[str, str]:
    """The order of sets is chance too; journals in memory, as no disk fails here."""
    where = str(MEMORY) if MEMORY.is_dir() else tempfile.gettempdir()
    return {**os.environ, "PYTHONHASHSEED": "0", "TMPDIR": where}


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(1000, marks=pytest.mark.long)])
def test_what_is_promised_holds_for_every_seed(seeds: int) -> None:
    workers = os.cpu_count() or 1
    bounds = [seeds * n // workers for n in range(workers + 1)]
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                started(
                    [sys.executable, "-m", "tests.simulation", str(first), str(last - 1)],
                    env=environment(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
            for first, last in pairwise(bounds)
            if last > first
        ]
        told = [each.communicate()[0] for each in running]
    assert [each.returncode for each in running] == [0] * len(running), "\n".join(told)
    assert sum(int(text.split()[0]) for text in told) == seeds


@pytest.mark.parametrize("seed", ["5", "11"])
def test_a_seed_is_a_trace_that_can_be_run_again(seed: str) -> None:
    command = [sys.executable, "-m", "tests.simulation", seed]
    first, second = (
        subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
        for _ in range(2)
    )
    assert first.stdout == second.stdout
    assert len(first.stdout.splitlines()) > 100


def test_each_chance_of_the_agent_is_the_seed_s() -> None:
    """One that draws by itself makes a trace that nobody can run again."""
    root = Path(shipped.__file__).parents[2]
    named = {
        path.relative_to(root).with_suffix("").as_posix().replace("/", ".")
        for path in (root / "fieldagent/agent").rglob("*.py")
        if re.search(r"\bRandom\(\)", path.read_text())
    }
    assert named == {module.__name__ for module in WITH_CHANCE}


class Steps(trio.abc.Instrument):
    """Counts how often a task goes on."""

    count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


def test_no_part_ticks_through_the_weeks(tmp_path: Path) -> None:
    """One that looks each minute costs more than all that happens: `_replaced` slows it down."""
    steps = Steps()
    simulate(11, tmp_path, steps)
    # Twice what an hour takes when nothing does.
    assert steps.count / ((DAYS * DAY + CALM) / 3600) < 400


def _forgetful(*arguments: Any, **more: Any) -> bool:
    return False


async def _credulous(driver: Any, status: Any, momsn: int) -> Any:
    """What the modem's reply says is believed, whatever its numbers say."""
    return status.verdict


def _selfless(queue: ChannelQueue, *arguments: Any, **more: Any) -> Any:
    """Whatever is posted has the same place in the queue."""
    add = queue._queue.add

    def level(key: int, **how: Any) -> Any:
        return add(key, **{**how, "priority": 1})

    with patch.object(queue._queue, "add", level):
        return _ADD(queue, *arguments, **more)


_ADD = ChannelQueue.add


def _unwritten(*arguments: Any, **more: Any) -> Callable[[Any], None]:
    return lambda db: None


def _added_up(journal: Journal, channel: Channel, sequence: int) -> bool:
    """What several stations have of a Package counts as if one had it."""
    rows = journal.read(
        "SELECT 1 FROM fragment_held WHERE sequence = ? AND channel = ?"
        " GROUP BY count HAVING count(DISTINCT position) = count",
        sequence,
        channel,
    )
    return bool(rows)


async def _kept(*arguments: Any) -> None:
    """What was in flight when a driver failed stays so."""


def _not_queued(*arguments: Any) -> None:
    """What a neighbour asks for is taken, and goes nowhere."""


@pytest.mark.parametrize(
    ("owner", "name", "broken", "promise"),
    [
        (inbound, "seen", _forgetful, "reached the user twice"),
        # Another session's reply is believed: its "sent" is in vain, its "not sent" is paid twice.
        (
            satellite.SatelliteDriver,
            "_verdict",
            _credulous,
            "over Satellite, and is not there|paid for 2 times",
        ),
        (outbound, "end", _unwritten, "has not ended"),
        (outbound, "is_held_whole", _added_up, "Delivered over Radio, and is not there"),
        (Intake, "queue_relayed", _not_queued, "is not at the hub|still waits"),
        (ChannelOutbox, "give_back", _kept, "has not ended|still waits"),
        (ChannelQueue, "add", _selfless, "waited behind|has not ended|still waits"),
    ],
)
def test_a_broken_promise_is_seen(
    tmp_path: Path, owner: Any, name: str, broken: Any, promise: str
) -> None:
    with patch.object(owner, name, broken), pytest.raises((Violated, BaseExceptionGroup)) as seen:
        # The rarest shows in one seed of nine, and chance differs from run to run.
        for seed in range(90):
            (tmp_path / str(seed)).mkdir()
            simulate(seed, tmp_path / str(seed))
    assert seen.group_contains(Violated, match=promise)
