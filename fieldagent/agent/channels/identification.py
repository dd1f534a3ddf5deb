"""Says a station's callsign over a radio whose frames bear none: in plain text, within ten minutes
of whatever was transmitted.

So the rules of amateur radio ask (47 CFR 97.119(a) at the end of each communication, and at least
every 10 minutes during one). A station that transmits nothing says nothing.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from math import inf
from typing import NoReturn

import trio

from fieldagent.agent.channels.radio_modem import (
    UNSENT,
    HeardPacket,
    RadioModem,
    TransmitResult,
)
from fieldagent.system.lazy_dataclass import dataclass

log = logging.getLogger(__name__)

OWED_AFTER = 540.0
"""Seconds from the first packet without a callsign; the rest of the ten minutes is for the channel
to become free."""
AGAIN = 10.0
"""Seconds after which a radio that did not transmit the callsign is asked again."""


@dataclass(slots=True)
class OwedIdentification:
    """When the callsign is due. It outlives the opening of the radio, as the duty does."""

    packet: bytes
    due: float = inf

    def note_transmitted(self, now: float) -> None:
        """Note that we sent at `now`: it is due OWED_AFTER seconds later at the latest."""
        self.due = min(self.due, now + OWED_AFTER)

    def note_said(self) -> None:
        """Note that the callsign was sent: nothing is owed."""
        self.due = inf


class IdentifiedModem:
    """Implements `channels.radio_modem.RadioModem` with another one."""

    def __init__(self, modem: RadioModem, owed: OwedIdentification) -> None:
        self._modem = modem
        self._owed = owed
        self._transmitting = trio.Lock()
        self._left = trio.Event()
        """Set when a packet has left, and then replaced."""

    async def transmit(self, packet: bytes, *, urgent: bool) -> TransmitResult:
        async with self._transmitting:
            result = await self._modem.transmit(packet, urgent=urgent)
        if result not in UNSENT:
            self._owed.note_transmitted(trio.current_time())
            self._left.set()
            self._left = trio.Event()
        return result

    async def receive(self) -> HeardPacket:
        while (packet := await self._modem.receive()).body == self._owed.packet:
            # A repeater hands back what we said.
            pass
        return packet

    async def identify(self) -> NoReturn:
        """Transmit the callsign each time it is due, and again after `AGAIN` seconds where the
        radio does not transmit it. Raises RadioLost."""
        while True:
            if self._owed.due == inf:
                await self._left.wait()
            await trio.sleep_until(self._owed.due)
            async with self._transmitting:
                result = await self._modem.transmit(self._owed.packet, urgent=False)
                if result not in UNSENT:
                    self._owed.note_said()
            if result in UNSENT:
                await trio.sleep(AGAIN)


@asynccontextmanager
async def identified(
    open_modem: Callable[[], AbstractAsyncContextManager[RadioModem]], owed: OwedIdentification
) -> AsyncIterator[RadioModem]:
    """Open a modem that says its callsign by itself. `owed` is the caller's: what is due outlives
    this opening. Raises what `open_modem` does; from within, in groups."""
    async with open_modem() as modem, trio.open_nursery() as nursery:
        air = IdentifiedModem(modem, owed)
        nursery.start_soon(air.identify)
        yield air
        nursery.cancel_scope.cancel()
