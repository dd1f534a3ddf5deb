"""Interface between a radio and the Radio channel.

Each radio among kits is opened as a `RadioModem`. A radio transmits and receives packets, but does
not guarantee their delivery. The layers above guarantee the delivery between agents.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import Protocol

import trio

from fieldagent.agent.channels.air_pace import AirTurn
from fieldagent.agent.channels.contract import Outbox, Transmission
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import EventRate

log = logging.getLogger(__name__)

PACKETS_MAX = 64


class RadioLost(Exception):
    """The radio is absent, was lost or is silent. The message is for people."""


class TransmitResult(Enum):
    """Radio's report on a packet. The report never means that a station has heard the packet."""

    TRANSMITTED = "transmitted"
    DROPPED = "dropped"
    """The radio dropped the packet: the channel was busy, or the radio's rules forbade it."""
    UNKNOWN = "unknown"
    """The result is unknown: the packet may have been transmitted."""
    SPENT = "spent"
    """The radio has used up its air-time of this hour."""


UNSENT_REASONS = {
    TransmitResult.DROPPED: "the channel is busy",
    TransmitResult.SPENT: "the air-time of this hour is spent; an SOS is sent anyway",
}
"""Results which mean that the packet was not transmitted, and the reason, for people, of each."""


class ReceivedPacket(NamedTuple):
    """A received packet, with its RSSI in dBm and its SNR in dB if the radio reports them."""

    body: bytes
    rssi: int | None = None
    snr: int | None = None


class RadioModem(Protocol):
    async def transmit(self, packet: bytes, *, urgent: bool) -> TransmitResult:
        """Pass one packet to the radio and wait until it is on the air or dropped.

        Only one call may run at the same time. Raises RadioLost.
        """

    async def receive(self) -> ReceivedPacket:
        """Wait for the next received packet, of any content, and return it. Raises RadioLost."""


class ReceiveQueue:
    """Received packets that wait for `receive`. While PACKETS_MAX packets wait, further packets are
    dropped, as if they had been lost on the air.
    """

    def __init__(self) -> None:
        self._packet_sender, self._packets = trio.open_memory_channel[ReceivedPacket](PACKETS_MAX)
        self._lost_rate = EventRate(trio.current_time)

    def add_packet(self, packet: ReceivedPacket) -> None:
        try:
            self._packet_sender.send_nowait(packet)
        except trio.WouldBlock:
            if count := self._lost_rate.count_event():
                log.warning("%d packets were lost: more arrive than can be stored", count)

    async def receive(self) -> ReceivedPacket:
        return await self._packets.receive()


class AirReception(Protocol):
    """Receiving side of a radio channel, similar to `contract.Reception`."""

    async def receive(
        self, body: bytes, *, damage: str = "", rssi: int | None = None, snr: int | None = None
    ) -> AirTurn:
        """Store one packet and its signal strength, and return its AirTurn. The packet is on disk
        when the method returns.
        """


class RadioOutbox(Outbox, Protocol):
    async def wait_for_acknowledgement(self, transmission: Transmission) -> bool:
        """Wait until stations confirm the whole transmission, and return True. Return False if a
        station's answer shows that it missed a part.
        """

    def try_again(self) -> None:
        """Make the unanswered Packages that wait for a retry due now."""
