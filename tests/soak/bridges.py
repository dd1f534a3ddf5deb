"""`python -m tests.soak.bridges --minutes 60`: TAK, MQTT and Home Assistant's discovery, while each
process is killed and restarted by a plan. Two hubs, one at taky and one with its own TAK server,
both at a mosquitto, kits with IP and satellite, phones, a program that makes devices from
announcements, and a phone on a kit's own network: all are processes.

The exit code is 1 if a receipt was false, an item came twice or not at all, returned to its sender,
or cost too much.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.bridge_judge import judge, unsettled
from tests.soak.bridge_ledger import BridgeLedger, Truth
from tests.soak.bridge_traffic import Traffic
from tests.soak.bridge_world import BridgeWorld, bridge_world

EVERY = 0.7
"""Average seconds between two acts of people."""
PAUSE = 3.0, 9.0
"""Seconds between two kills."""
DOWN = 0.0, 6.0
"""Seconds for which a killed process is away."""
SETTLED = 240.0
"""Seconds after the last kill within which everything has arrived."""
LOOK_EVERY, DISKS_EVERY = 0.2, 2.0


@dataclass
class Soak:
    ledger: BridgeLedger = field(default_factory=BridgeLedger)
    faults: Counter[str] = field(default_factory=Counter)
    rows: list[str] = field(default_factory=list)
    seconds: float = 0.0


def plan(world: BridgeWorld, seconds: float, chance: random.Random) -> list[tuple[float, int]]:
    """Return the kill times of the processes: each is killed once before one is killed again."""
    order: list[int] = []
    moments, at = [], 0.0
    while (at := at + chance.uniform(*PAUSE)) < seconds:
        if not order:
            order = [*range(len(world.mortals()))]
            chance.shuffle(order)
        moments.append((at, order.pop()))
    return moments


def live(home: Path, *, seed: int, seconds: float) -> Soak:
    soak = Soak()
    with bridge_world(home) as world:
        ledger, chance = soak.ledger, random.Random(seed)
        kills = plan(world, seconds, chance)
        traffic, truth = Traffic(world, ledger, chance), Truth(world, ledger)
        work = _Work(world, ledger, traffic, truth)
        while any(each.running is None for each in world.mortals()) and not ledger.wrong:
            work.turn()
            time.sleep(LOOK_EVERY)
        began = time.monotonic()
        act = 0.0
        while (now := time.monotonic() - began) < seconds and not ledger.wrong:
            if now >= act:
                act = now + chance.uniform(0, 2 * EVERY)
                traffic.act()
            if kills and kills[0][0] <= now:
                _kill(world, soak, kills.pop(0)[1], chance)
            work.turn()
            time.sleep(LOOK_EVERY)
        soak.seconds = time.monotonic() - began
        deadline = time.monotonic() + SETTLED
        while (why := unsettled(world, ledger)) and time.monotonic() < deadline:
            work.turn()
            time.sleep(LOOK_EVERY)
        ledger.wrong += why
        work.turn()
        truth.look_at_disks()
        judge(world, ledger, soak.rows)
    return soak


class _Work:
    """One turn of all continuous work beside the acts of people."""

    def __init__(
        self, world: BridgeWorld, ledger: BridgeLedger, traffic: Traffic, truth: Truth
    ) -> None:
        self._world = world
        self._ledger = ledger
        self._traffic = traffic
        self._truth = truth
        self._disks = 0.0

    def turn(self) -> None:
        for each in self._world.mortals():
            if why := each.tend():
                self._ledger.wrong.append(why)
        self._truth.look()
        if all(each.running is not None for each in (self._world.taky, self._world.broker)):
            self._traffic.go_on()
        if time.monotonic() > self._disks:
            self._truth.look_at_disks()
            self._disks = time.monotonic() + DISKS_EVERY


def _kill(world: BridgeWorld, soak: Soak, which: int, chance: random.Random) -> None:
    mortal = world.mortals()[which]
    down, gently = chance.uniform(*DOWN), chance.random() < 0.3
    if mortal.running is None:
        return
    if mortal is world.broker and not gently:
        world.crashes.append(time.monotonic())
    mortal.kill(down, gently=gently)
    soak.faults[f"{mortal.name} {'stopped' if gently else 'killed'}"] += 1


def report(soak: Soak) -> str:
    ledger = soak.ledger
    total = sum(soak.faults.values())
    faults = ", ".join(f"{what} {times}" for what, times in sorted(soak.faults.items()))
    return "\n".join(
        [
            f"{soak.seconds:.0f} s, {total} ends of processes: {faults}.",
            "",
            "| what | said | arrived | twice, its carrier killed between | lost by the broker |",
            "|---|---|---|---|---|",
            *soak.rows,
            "",
            *(ledger.wrong or ["No receipt said too much; nothing lost, doubled, or overspent."]),
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.bridges", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--seed", type=int, default=1, help="what is killed when (1)")
    arguments = parser.parse_args()
    logging.disable()
    with tempfile.TemporaryDirectory(prefix="fieldagent-bridges-") as home:
        soak = live(Path(home), seed=arguments.seed, seconds=arguments.minutes * 60)
    print(report(soak))
    return 1 if soak.ledger.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
