"""How much of its time a transfer between agents puts to use on the air; in virtual time."""

from __future__ import annotations

import base64
import logging
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import trio
import trio.testing

from fieldagent.package.package import Status
from tests.agent.channels.radio_kit import on_air, station, until

SIZE = 3000
"""Bytes of data; at 9 600 bit/s they alone take 2.5 s."""
LOSSES = (0.0, 0.2, 0.5)


async def _seconds(path: Path, loss: float) -> float:
    payload = base64.b64encode(bytes(number * 7 % 256 for number in range(SIZE))).decode()
    async with (
        on_air(path, {"loss": loss}) as sky,
        station(path, 1, path / "node-1") as sender,
        station(path, 2, path / "node-2") as receiver,
    ):
        for each in (sender, receiver):
            await until(lambda each=each: bool(each.outbox.link.facts.get("node")))  # type: ignore[misc]
        began = trio.current_time()
        sequence = await sender.post(data={"payload": payload})
        assert await sender.outcome(sequence) is Status.DELIVERED
        return (trio.current_time() - began) * sky.air.bitrate / 8


def ratio(loss: float, rounds: int = 3) -> float:
    """Bytes of data over those that the air could have carried meanwhile."""
    taken = []
    for _ in range(rounds):
        with TemporaryDirectory() as folder:
            clock = trio.testing.MockClock(autojump_threshold=0.03)
            taken.append(trio.run(_seconds, Path(folder), loss, clock=clock))
    return SIZE / fmean(taken)


def main() -> None:
    logging.disable(logging.CRITICAL)
    print(f"\n{SIZE} bytes between two agents, over what the air could carry meanwhile")
    for loss in LOSSES:
        print(f"{f'{loss:.0%} of the packets lost':<62} {ratio(loss):>7.3f}", flush=True)


if __name__ == "__main__":
    main()
