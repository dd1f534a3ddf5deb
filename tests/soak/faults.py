"""Repeated faults, each with its own probability."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import psycopg
import trio

from tests.agent.channels.test_satellite_soak import disturb
from tests.hub.test_cluster import cut_off
from tests.soak.ledger import Ledger
from tests.soak.world import LOSS, Kit, World

HILLS = "hills"
HILL = 60.0, 1800.0
"""Seconds behind a hill."""
BETWEEN_HILLS = 900.0
in_thread = trio.to_thread.run_sync


async def plague(world: World, ledger: Ledger, hurry: float) -> None:
    """Cause faults until cancelled. `hurry` shortens the pauses between faults."""
    chance = random.Random()

    async def again(what: str, every: float, fault: Callable[[], Awaitable[None]]) -> None:
        while True:
            await trio.sleep(chance.expovariate(hurry / every))
            # A started fault is repaired before the end.
            with trio.CancelScope(shield=True):
                await fault()
            ledger.fault(what)

    async with trio.open_nursery() as nursery:
        for kit in world.kits:
            nursery.start_soon(again, "modems", 2 * hurry, partial(_disturb, kit, chance))
        faults: dict[str, tuple[float, Callable[[], Awaitable[None]]]] = {
            "agents killed": (20, partial(_kill_agent, world.kits[-1])),
            "hubs killed": (20, partial(_kill_hub, world)),
            "database restarted": (60, partial(in_thread, world.restart_database)),
            "database connections cut": (20, partial(_cut_database, world)),
            "links cut": (10, partial(_cut, world)),
            "radio nodes gone or reset": (20, partial(_disturb_air, world, chance)),
        }
        for what, (every, fault) in faults.items():
            nursery.start_soon(again, what, every, fault)
        nursery.start_soon(_hills, world, ledger, chance, hurry**2)


async def _disturb(kit: Kit, chance: random.Random) -> None:
    disturb(kit.modem, kit.port, chance)
    kit.port.poke()
    await trio.sleep(0.02)
    kit.port.plug()


async def _kill_agent(kit: Kit) -> None:
    await in_thread(kit.kill)
    await in_thread(kit.start)


async def _kill_hub(world: World) -> None:
    await in_thread(world.kill_hub)
    await in_thread(world.start_hub)


async def _cut_database(world: World) -> None:
    # A starting server has no connection to cut.
    with world.hooked.note_outage(), suppress(psycopg.OperationalError):
        await in_thread(cut_off, world.database)


async def _cut(world: World) -> None:
    world.front.cut()


async def _hills(world: World, ledger: Ledger, chance: random.Random, hurry: float) -> None:
    """Hide all kits from each other, sometimes, for 1 to 30 minutes. `hurry` shortens this too."""
    while True:
        await trio.sleep(chance.expovariate(hurry / BETWEEN_HILLS))
        world.air.type("loss 1")
        try:
            await trio.sleep(chance.uniform(*HILL) / hurry)
        finally:
            world.air.type(f"loss {LOSS}")
            ledger.fault(HILLS)


async def _disturb_air(world: World, chance: random.Random) -> None:
    number = chance.choice("12")
    if chance.random() < 0.5:
        world.air.type(f"reboot {number}")
        return
    world.air.type(f"unplug {number}")
    await trio.sleep(0.5)
    world.air.type(f"plug {number}")
