"""Delivered means that the gateway has the message.

A real agent on a real clock and a real pty, with a modem that browns out, is unplugged, stalls and
loses bytes at random moments. `tests/run soak` sends ten thousand messages. SOAK sets another
number.
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest
import trio

from fieldagent.extensions.lab.simulator.base_camp import BaseCamp
from fieldagent.extensions.lab.simulator.gateway import SimulatedGateway
from fieldagent.extensions.lab.simulator.mt_queue import MtQueue
from fieldagent.extensions.lab.simulator.pty_port import PtyPort
from fieldagent.extensions.lab.simulator.sbd_modem import SimulatedModem
from fieldagent.extensions.lab.simulator.sbd_state import PlannedStatus
from tests.breaking import Put, environment
from tests.processes import MODULE, Agent, agent

CALLERS = 16
FEW, SOME, MANY = 100, 1000, int(os.environ.get("SOAK", "10000"))
AGAIN_SOON = (
    Put("fieldagent.agent.channels.reopening:REOPEN_AFTER", [0.05]),
    Put("fieldagent.wire.sbd:_RETRY_SPREADS_S", [0.05] * 1000),
    Put("fieldagent.agent.channels.sbd_modem:REPLY_TIMEOUT_S", 3.0),
    Put("fieldagent.agent.channels.sbd_modem:HOST_SESSION_TIMEOUT_S", 3.0),
)
"""Shorter pauses and timeouts. With the normal ones, a day would not be enough."""


def disturb(modem: SimulatedModem, port: PtyPort, chance: random.Random) -> None:
    match chance.randrange(6):
        case 0:
            modem.start_brown_out()
        case 1:
            modem.faults.reset_before_session = 1
        case 2:
            port.unplug()
        case 3:
            modem.faults.swallow = 1
        case 4:
            modem.faults.lose_replies = 1
        case 5:
            number = chance.choice([2, 10, 13, 18, 32])
            modem.faults.statuses.append(PlannedStatus(number, delivered=False, counted=False))


async def soak(home: Path, count: int) -> tuple[set[str], list[object]]:
    """Return the Packages that were answered Delivered, and those that the gateway got."""
    chance = random.Random(11)
    queue = MtQueue()
    camp = BaseCamp(lambda line: None, queue)
    modem = SimulatedModem(SimulatedGateway(lambda line: None, queue, camp))
    port = PtyPort(modem, home / "modem", latency=0.01)
    delivered: set[str] = set()
    numbers = iter(range(count))
    lock = threading.Lock()

    def calls(kit: Agent) -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            answer = kit.post(f"note {number}")
            if answer.body["status"] == "Delivered":
                delivered.add(f"note {number}")

    async def trouble() -> None:
        while True:
            # One message must succeed before the next. A busy machine is slow, not stuck.
            known = len(delivered)
            while len(delivered) == known:
                await trio.sleep(0.02)
            await trio.sleep(chance.uniform(0.0, 0.1))
            disturb(modem, port, chance)
            port.poke()
            await trio.sleep(0.02)
            port.plug()

    async with trio.open_nursery() as last:
        await last.start(port.run)
        with agent(home, {}, MODULE, **environment(home, *AGAIN_SOON)) as kit:
            async with trio.open_nursery() as callers:
                last.start_soon(trouble)
                for _ in range(CALLERS):
                    callers.start_soon(trio.to_thread.run_sync, calls, kit)
        last.cancel_scope.cancel()
    return delivered, [getattr(item, "content", item) for item in camp.received]


async def _check_delivered(home: Path, count: int) -> None:
    delivered, received = await soak(home, count)
    assert len(delivered) == count
    assert delivered - {*received} == set()


def test_delivered_messages_are_at_gateway_despite_modem_faults(tmp_path: Path) -> None:
    trio.run(_check_delivered, tmp_path, FEW)


@pytest.mark.full
def test_thousand_delivered_messages_are_at_gateway(tmp_path: Path) -> None:
    trio.run(_check_delivered, tmp_path, SOME)


@pytest.mark.soak
def test_ten_thousand_delivered_messages_are_at_gateway(tmp_path: Path) -> None:
    trio.run(_check_delivered, tmp_path, MANY)
