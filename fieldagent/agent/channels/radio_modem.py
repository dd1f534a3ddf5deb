"""What a radio promises the Radio channel: packets go out, packets come in, and none is sure.

Each radio of `agent/radios/` is opened as a `RadioModem`; whatever must be certain is made so
above, between agents.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import Protocol

import trio

from fieldagent.agent.channels.air_pace import AirTurn
from fieldagent.agent.channels.contract import Outbox, Transmission
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.seldom import Seldom

log = logging.getLogger(__name__)

PACKETS_MAX = 64
AIR_BYTES = 200
"""Most bytes of a packet, unless the settings say otherwise: each radio of a group takes them."""
AIR_BYTES_MIN, AIR_BYTES_MAX = 50, 250
"""What the settings may say: from LoRaWAN's slowest rate (51) to what LoRa chips hold (255)."""


class RadioLost(Exception):
    """The radio is not there, went away or is silent; the text is for people."""


class TransmitResult(Enum):
    """What the radio says of a packet. None of them says that somebody heard it."""

    TRANSMITTED = "transmitted"
    DROPPED = "dropped"
    """The radio gave it up: the channel was busy, or its rules forbade it."""
    UNKNOWN = "unknown"
    """It may have been transmitted."""
    SPENT = "spent"
    """The radio may not be on the air for longer in this hour."""


UNSENT = {
    TransmitResult.DROPPED: "the channel is busy",
    TransmitResult.SPENT: "the air-time of this hour is spent; an SOS goes all the same",
}
"""What did not go on the air, and why, for people."""


class HeardPacket(NamedTuple):
    """With its strength in dBm and its ratio to noise in dB, where the radio tells them."""

    body: bytes
    rssi: int | None = None
    snr: int | None = None


class RadioModem(Protocol):
    async def transmit(self, packet: bytes, *, urgent: bool) -> TransmitResult:
        """Give one packet to the radio and wait until it is on the air, or given up.

        One at a time. Raises RadioLost.
        """

    async def receive(self) -> HeardPacket:
        """Wait for the next packet that was heard, of any content, and return it. Raises
        RadioLost."""


class ReceiveQueue:
    """Packets that were heard and wait to be taken in; one more is lost, as on the air."""

    def __init__(self) -> None:
        self._heard, self._packets = trio.open_memory_channel[HeardPacket](PACKETS_MAX)
        self._lost = Seldom(trio.current_time)

    def hear(self, packet: HeardPacket) -> None:
        try:
            self._heard.send_nowait(packet)
        except trio.WouldBlock:
            if count := self._lost.note():
                log.warning("packets were lost, %d of them: more come than can be stored", count)

    async def receive(self) -> HeardPacket:
        return await self._packets.receive()


class AirReception(Protocol):
    """The way in from the air, as `contract.Reception`."""

    async def receive(
        self, body: bytes, *, damage: str = "", rssi: int | None = None, snr: int | None = None
    ) -> AirTurn:
        """Take in one packet, as well as it was heard. Returns once it is on disk."""


class RadioOutbox(Outbox, Protocol):
    async def acknowledged(self, transmission: Transmission) -> bool:
        """Wait until a station says that it has all of it; False when what a station says of a
        later one shows that this one was missed."""

    def try_again(self) -> None:
        """Let what waits for its next try, as nobody answered, go at once."""
