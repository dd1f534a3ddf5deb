"""Computes the air-time of a radio that does not count it, from the radio's bit rate, and enforces
the limit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import (
    UNSENT_REASONS,
    RadioModem,
    ReceivedPacket,
    TransmitResult,
)

FRAME_BYTES = 40
"""Estimated overhead of a packet in bytes: preamble, addresses, check, and the time to key up."""


class CountedModem:
    """A `channels.radio_modem.RadioModem` that counts the air time of another modem, computed from
    the bit rate.
    """

    def __init__(self, modem: RadioModem, link: ChannelLink, bit_rate: int) -> None:
        self._modem = modem
        self._link = link
        self._bit_rate = bit_rate

    async def transmit(self, packet: bytes, *, urgent: bool) -> TransmitResult:
        seconds = 8 * (len(packet) + FRAME_BYTES) / self._bit_rate
        if not self._link.air_time.can_send(seconds, urgent=urgent):
            return TransmitResult.SPENT
        # Count the packet before it is sent, because it may be on the air even if this call is
        # cancelled.
        self._link.air_time.record_use(seconds)
        result = await self._modem.transmit(packet, urgent=urgent)
        if result in UNSENT_REASONS:
            self._link.air_time.record_use(-seconds)
        return result

    async def receive(self) -> ReceivedPacket:
        return await self._modem.receive()


@asynccontextmanager
async def open_counted(
    open_modem: Callable[[], AbstractAsyncContextManager[RadioModem]],
    link: ChannelLink,
    bit_rate: int,
) -> AsyncIterator[RadioModem]:
    """Open a modem with `bit_rate` bits per second, and add its air-time to the counter of `link`.
    Raises the errors of `open_modem`.
    """
    async with open_modem() as modem:
        yield CountedModem(modem, link, bit_rate)
