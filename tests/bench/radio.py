"""Measures the efficiency of a transfer between agents on the air, in virtual time."""

from __future__ import annotations

import base64
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import trio
import trio.testing

from fieldagent.package.package import Status
from tests.extensions.radio.radio_kit import on_air, station, until

SIZE = 3000
"""Bytes of data, which take 2.5 s at 9 600 bit/s."""
AFTER_HEADERS = 0.69
"""Share of the air for data, after the preamble and the envelope of each packet."""
LOSSES = (0.0, 0.2, 0.5)


async def _seconds(path: Path, loss: float, seed: int) -> float:
    payload = base64.b64encode(bytes(number * 7 % 256 for number in range(SIZE))).decode()
    async with (
        on_air(path, {"loss": loss}, seed=seed) as sky,
        station(path, 1, path / "node-1") as sender,
        station(path, 2, path / "node-2") as receiver,
    ):
        for each in (sender, receiver):
            await until(lambda each=each: bool(each.outbox.link.facts.get("node")))  # type: ignore[misc]
            # Each has heard the other recently.
            assert await each.outcome(await each.post()) is Status.DELIVERED
        began = trio.current_time()
        sequence = await sender.post(data={"payload": payload})
        assert await sender.outcome(sequence) is Status.DELIVERED
        return (trio.current_time() - began) * sky.air.bitrate / 8


def ratio(loss: float, rounds: int = 30) -> float:
    """Return the bytes of data as a ratio to the possible bytes in that time, without headers and
    losses.
    """
    taken = []
    for seed in range(rounds):
        with TemporaryDirectory() as folder:
            clock = trio.testing.MockClock(autojump_threshold=0.001)
            taken.append(trio.run(_seconds, Path(folder), loss, seed, clock=clock))
    return SIZE / fmean(taken) / (AFTER_HEADERS * (1 - loss))
