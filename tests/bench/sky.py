"""A simulated radio channel that many kits in one process share. It uses no ptys, so a hundred kits
are possible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import NoReturn

import trio

from fieldagent.agent.channels.radio_modem import ReceivedPacket, ReceiveQueue, TransmitResult
from fieldagent.extensions.lab.simulator.air import SharedAir

BACKOFF = 0.2
"""Maximum random seconds of a wait after the air became free."""


class Sky:
    """The radio channel. A sender waits until it is free, and then a random time of up to
    `BACKOFF`.
    """

    def __init__(self, air: SharedAir, random: Random) -> None:
        self.air, self.random = air, random
        self.sent: Counter[int] = Counter()
        self.seconds = 0.0
        """Total transmission time of all kits in seconds."""
        self.modems: dict[int, SkyModem] = {}
        self._changed = trio.Event()

    def modem(self, number: int) -> SkyModem:
        self.air.stations.append(number)
        self.modems[number] = SkyModem(self, number)
        return self.modems[number]

    def transmissions(self) -> int:
        return self.sent.total()

    def forget(self) -> None:
        """Forget the packets so far."""
        self.sent.clear()
        self.seconds = 0.0

    async def transmit(self, number: int, packet: bytes) -> None:
        air = self.air
        while (free := air.find_busy_end(trio.current_time(), number)) > trio.current_time():
            await trio.sleep_until(free + self.random.random() * BACKOFF)
        ends = air.transmit(trio.current_time(), number, packet)
        self.sent[number] += 1
        self.seconds += air.compute_air_time(packet)
        self._changed.set()
        await trio.sleep_until(ends)

    async def run(self) -> NoReturn:
        while True:
            self._changed = trio.Event()
            with trio.move_on_at(self.air.find_next_change()):
                await self._changed.wait()
            for number, packet in self.air.remove_arrived(trio.current_time()):
                self.modems[number].heard.add_packet(ReceivedPacket(packet))


class SkyModem:
    """Implements `RadioModem`, and is open immediately."""

    def __init__(self, sky: Sky, number: int) -> None:
        self._sky, self._number = sky, number
        self.heard = ReceiveQueue()

    async def transmit(self, packet: bytes, *, urgent: bool) -> TransmitResult:
        await self._sky.transmit(self._number, packet)
        return TransmitResult.TRANSMITTED

    async def receive(self) -> ReceivedPacket:
        return await self.heard.receive()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[SkyModem]:
        yield self
