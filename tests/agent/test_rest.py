"""An idle agent lets the processor sleep, because a kit may run on a battery."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import trio
from trio.abc import Instrument
from trio.lowlevel import add_instrument
from trio.testing import MockClock

from fieldagent.agent.agent import run
from fieldagent.agent.settings import parse
from tests.processes import sky

MINUTES = 20


class Wakeups(Instrument):
    def __init__(self) -> None:
        self.moments: set[float] = set()

    def after_io_wait(self, timeout: float) -> None:
        self.moments.add(trio.current_time())


async def test_idle_agent_wakes_less_than_once_in_ten_seconds(
    tmp_path: Path, clock: MockClock
) -> None:
    """The agent has a modem at a simulated port, and no client listens."""
    with sky(tmp_path):
        port, state = tmp_path / "modem", tmp_path / "state"
        text = f"api-port=0\nsatellite-port={port}\nstate-directory={state}\n"
        settings = parse(text, tmp_path / "agent.properties")
        async with trio.open_nursery() as nursery:
            _, asks = trio.open_memory_channel[signal.Signals](0)
            await nursery.start(partial(run, settings, print, asks))
            await trio.sleep(60 * MINUTES)
            wakeups = Wakeups()
            add_instrument(wakeups)
            await trio.sleep(60 * MINUTES)
            nursery.cancel_scope.cancel()
    assert 0 < len(wakeups.moments) <= 6 * MINUTES
