"""Transmits a station's callsign in plain text over a radio whose frames do not contain it, within
ten minutes of any transmission.

The rules of amateur radio require this at the end of each communication, and at least every 10
minutes during a communication (47 CFR 97.119(a)). A station that does not transmit does not need to
identify itself.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from math import inf
from typing import NoReturn

import trio

from fieldagent.agent.channels.radio_modem import (
    UNSENT_REASONS,
    RadioModem,
    ReceivedPacket,
    TransmitResult,
)
from fieldagent.system.lazy_dataclass import dataclass

log = logging.getLogger(__name__)

IDENTIFY_AFTER_S = 540.0
"""Seconds after the first packet without a callsign, when the callsign becomes due. The rest of the
ten minutes is for waiting until the channel is free."""
RETRY_AFTER_S = 10.0
"""Seconds until the callsign is retried if the radio did not transmit it."""


@dataclass(slots=True)
class IdentificationTimer:
    """Timer that contains the time when the callsign is due. The timer continues when the radio is
    opened again, because the callsign is still due.
    """

    packet: bytes
    due_at: float = inf

    def record_transmission(self, now: float) -> None:
        """Record that a packet was sent at `now`. The callsign is due at most IDENTIFY_AFTER_S
        later.
        """
        self.due_at = min(self.due_at, now + IDENTIFY_AFTER_S)

    def mark_sent(self) -> None:
        """Record that the callsign was sent, so that it is no longer due."""
        self.due_at = inf


class IdentifiedModem:
    """Implements `channels.radio_modem.RadioModem` on top of another modem, and transmits the
    callsign when it is due.
    """

    def __init__(self, modem: RadioModem, timer: IdentificationTimer) -> None:
        self._modem = modem
        self._timer = timer
        self._transmitting = trio.Lock()
        self._packet_left = trio.Event()
        """Event that is set when a packet has left. A new event then replaces it."""

    async def transmit(self, packet: bytes, *, urgent: bool) -> TransmitResult:
        async with self._transmitting:
            result = await self._modem.transmit(packet, urgent=urgent)
        if result not in UNSENT_REASONS:
            self._timer.record_transmission(trio.current_time())
            self._packet_left.set()
            self._packet_left = trio.Event()
        return result

    async def receive(self) -> ReceivedPacket:
        while (packet := await self._modem.receive()).body == self._timer.packet:
            # Skip our own callsign packet, which a repeater has returned.
            pass
        return packet

    async def identify(self) -> NoReturn:
        """Transmit the callsign each time it is due, forever. If the radio does not transmit it,
        retry after `RETRY_AFTER_S` seconds. Raises RadioLost.
        """
        while True:
            if self._timer.due_at == inf:
                await self._packet_left.wait()
            await trio.sleep_until(self._timer.due_at)
            async with self._transmitting:
                result = await self._modem.transmit(self._timer.packet, urgent=False)
                if result not in UNSENT_REASONS:
                    self._timer.mark_sent()
            if result in UNSENT_REASONS:
                await trio.sleep(RETRY_AFTER_S)


@asynccontextmanager
async def open_identified(
    open_modem: Callable[[], AbstractAsyncContextManager[RadioModem]], timer: IdentificationTimer
) -> AsyncIterator[RadioModem]:
    """Open a modem that identifies itself. The caller keeps `timer`, and passes it again when the
    radio is reopened. Raises the errors of `open_modem`. Errors inside the block are raised in
    exception groups.
    """
    async with open_modem() as modem, trio.open_nursery() as nursery:
        air = IdentifiedModem(modem, timer)
        nursery.start_soon(air.identify)
        yield air
        nursery.cancel_scope.cancel()
