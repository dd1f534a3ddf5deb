"""Many seeds of weeks in the field, and a proof that each broken promise would be noticed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
import trio

from fieldagent.agent import agent as shipped
from tests.processes import started
from tests.simulation.broken import BROKEN
from tests.simulation.world import CALM, DAY, DAYS, WITH_CHANCE, simulate

FEW, SOME, MANY = range(12, 14), range(40), range(1000)
"""Time runs during code in the first of the few seeds, and stands still in the second
(`world._rate`). Both are cheap."""
MEMORY = Path("/dev/shm")


def environment() -> dict[str, str]:
    """Return an environment with a random order of sets, and with journals in memory, because no
    disk fails here.
    """
    where = str(MEMORY) if MEMORY.is_dir() else tempfile.gettempdir()
    return {**os.environ, "PYTHONHASHSEED": "0", "TMPDIR": where}


@pytest.mark.parametrize(
    "seeds",
    [
        FEW,
        pytest.param(SOME, marks=pytest.mark.full),
        pytest.param(MANY, marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_guarantees_hold_for_every_seed(seeds: range) -> None:
    workers = os.cpu_count() or 1
    bounds = [seeds.start + len(seeds) * n // workers for n in range(workers + 1)]
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
        outputs = [each.communicate()[0] for each in running]
    assert [each.returncode for each in running] == [0] * len(running), "\n".join(outputs)
    # A single seed prints its trace first.
    assert sum(int(text.splitlines()[-1].split()[0]) for text in outputs) == len(seeds)


@pytest.mark.full
def test_seed_reproduces_its_trace() -> None:
    command = [sys.executable, "-m", "tests.simulation", "11"]
    first, second = (
        subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
        for _ in range(2)
    )
    assert first.stdout == second.stdout
    assert len(first.stdout.splitlines()) > 100


def test_every_random_source_of_the_agent_is_seeded() -> None:
    """A part with its own randomness makes a trace that cannot be repeated."""
    root = Path(shipped.__file__).parents[2]
    named = {
        path.relative_to(root).with_suffix("").as_posix().replace("/", ".")
        for home in ("fieldagent/agent", "fieldagent/extensions/radio")
        for path in (root / home).rglob("*.py")
        if re.search(r"\bRandom\(\)", path.read_text())
    }
    assert named == {module.__name__ for module in WITH_CHANCE}


class Steps(trio.abc.Instrument):
    """Counts the steps of tasks."""

    count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


@pytest.mark.full
def test_idle_agent_takes_few_steps_per_hour(tmp_path: Path) -> None:
    """A part that checks each minute costs more than all events: `_replaced` slows it down."""
    steps = Steps()
    simulate(11, tmp_path, steps)
    # Twice the steps of an idle hour.
    assert steps.count / ((DAYS * DAY + CALM) / 3600) < 400


@pytest.mark.parametrize(
    "name",
    [
        each if n == 0 else pytest.param(each, marks=pytest.mark.full)
        for n, each in enumerate(BROKEN)
    ],
)
def test_broken_guarantee_is_detected(name: str) -> None:
    # The rarest fault appears in one of nine seeds.
    seeds = dict.fromkeys([BROKEN[name].seed, *range(90)])
    command = [sys.executable, "-m", "tests.simulation.broken", name, *map(str, seeds)]
    subprocess.run(command, env=environment(), check=True)
