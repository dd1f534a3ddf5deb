"""Asked to stop once or again and again, up to its last moment, a program ends in good order."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from tests.processes import MODULE, Running, administer, agent, hub

ASKS = (signal.SIGTERM, signal.SIGINT)
ASKED_MAX = 10_000
BETWEEN = 0.001
"""Seconds: a shorter part of its end is not met."""


def of_an_agent(home: Path) -> AbstractContextManager[Running]:
    return agent(home, {"satellite-port": None})


def of_a_hub(home: Path) -> AbstractContextManager[Running]:
    database = str(home / "hub.sqlite3")
    administer(database, "init", "Alps")
    return hub(home, {"database": database})


def of_the_demo(home: Path) -> AbstractContextManager[Running]:
    return Running([*MODULE, "demo", "--port", "0"], "Ctrl-C ends the demo")


@pytest.mark.parametrize("ask", ASKS, ids=[each.name for each in ASKS])
@pytest.mark.parametrize("started", [of_an_agent, of_a_hub, of_the_demo])
def test_asked_again_and_again_it_ends_well(
    tmp_path: Path, started: Callable[[Path], AbstractContextManager[Running]], ask: signal.Signals
) -> None:
    with started(tmp_path) as running:
        for _ in range(ASKED_MAX):
            running.process.send_signal(ask)
            with suppress(subprocess.TimeoutExpired):
                running.process.wait(BETWEEN)
                break
        assert running.wait() == 0, running.lines
    assert "Traceback" not in "\n".join(running.lines)
