"""Runs spin on Promela models: checks all runs of a model, or returns the trace of a random run.

A model traces each step with one line, `T call value how name=value…`. The call has the name of a
function in the code or of an event, followed by the state before it.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.machine import tool

HERE = Path(__file__).parent
MODELS = sorted(path.stem for path in HERE.glob("*.pml"))
DEPTH = 100_000
"""Maximum number of steps in a run. A search that reaches this limit is incomplete, and fails."""
TIME_LIMIT = 60
"""Maximum seconds of each called program."""


class Step(NamedTuple):
    call: str
    value: int
    how: str
    state: dict[str, str]


def text(model: str) -> str:
    return (HERE / f"{model}.pml").read_text()


def faults(model: str) -> list[str]:
    """Return the names of the preprocessor switches of a model. Each breaks the protocol at one
    place.
    """
    return sorted(set(re.findall(r"\bFAULT_\w+", text(model))))


def check(model: str, place: Path, *defines: str, cycles: bool = False) -> str:
    """Search all runs of the model for a violated claim, or with `cycles` for one that is violated
    forever. Return the checker's output, which contains `errors: 0` on success.
    """
    spin, gcc = tool("spin", "spin"), tool("gcc", "gcc libc6-dev")
    switches = [f"-D{define}" for define in defines]
    _run([spin, *switches, "-a", HERE / f"{model}.pml"], place)
    kind = "-DNP" if cycles else "-DSAFETY"
    _run([gcc, "-w", kind, "-DMEMLIM=1024", "-o", "pan", "pan.c"], place)
    return _run(["./pan", f"-m{DEPTH}", *(["-l"] if cycles else [])], place)


def walk(model: str, seed: int) -> list[Step]:
    """Return the steps of one random run of the model."""
    walked = HERE / f"{model}.pml"
    command: list[str | Path] = [tool("spin", "spin"), "-T", f"-n{seed}", "-DWALK", walked]
    with tempfile.TemporaryDirectory() as place:
        # It leaves a file there with the same name each time.
        said = _run(command, Path(place))
    assert "spin: " not in said, said
    return _steps(said)


def trail(model: str, place: Path, *defines: str) -> list[Step]:
    """Return the steps to the error that `check` found in that place, with the same switches."""
    spin, switches = tool("spin", "spin"), [f"-D{define}" for define in defines]
    file = place / f"{model}.pml.trail"
    return _steps(_run([spin, "-T", *switches, "-k", file, HERE / f"{model}.pml"], place, 0, 1))


CYCLE = "<<<<<START OF CYCLE>>>>>"


def _steps(said: str) -> list[Step]:
    """Return the traced steps. An endless part appears twice."""
    said += said.partition(CYCLE)[2]
    lines = [line.split() for line in said.splitlines() if line.startswith("T ")]
    return [
        Step(call, int(value), how, dict(each.split("=") for each in state))
        for _, call, value, how, *state in lines
    ]


def _run(command: Sequence[str | Path], place: Path, *codes: int) -> str:
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=TIME_LIMIT)
    assert done.returncode in (codes or (0,)), done.stdout + done.stderr
    return done.stdout + done.stderr
