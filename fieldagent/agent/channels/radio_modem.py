"""What a radio promises the Radio channel: packets go out, packets come in, and none is sure.

A node on the node link and a KISS modem are each opened as a `RadioModem`; whatever must be certain
is made so above, between agents.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import Protocol

import trio

from fieldagent.agent.channels.contract import Outbox, Transmission

log = logging.getLogger(__name__)

PACKETS_MAX = 64
AIR_BYTES = 200
"""Most bytes of a packet; every radio must take as many."""
WINDOW = 4
"""Packets that wait to be answered; what is urgent may join them."""


class RadioLost(Exception):
    """The radio is not there, went away or is silent; the text is for people."""


class TransmitResult(Enum):
    """What the radio says of a packet. None of them says that somebody heard it."""

    TRANSMITTED = "transmitted"
    DROPPED = "dropped"
    """The radio gave it up: the channel was busy, or its rules forbade it."""
    UNKNOWN = "unknown"
    """It may have been transmitted."""


class RadioModem(Protocol):
    async def transmit(self, packet: bytes, *, urgent: bool) -> TransmitResult:
        """Give one packet to the radio and wait until it is on the air, or given up.

        One at a time. Raises RadioLost.
        """

    async def receive(self) -> bytes:
        """The next packet that was heard, of any content. Raises RadioLost."""


class ReceiveQueue:
    """Packets that were heard and wait to be taken in; one more is lost, as on the air."""

    def __init__(self) -> None:
        self._heard, self._packets = trio.open_memory_channel[bytes](PACKETS_MAX)

    def hear(self, packet: bytes) -> None:
        try:
            self._heard.send_nowait(packet)
        except trio.WouldBlock:
            log.warning("a packet was lost: more come than can be stored")

    async def receive(self) -> bytes:
        return await self._packets.receive()


class RadioOutbox(Outbox, Protocol):
    async def acknowledged(self, transmission: Transmission) -> bool:
        """Wait until a station says that it has all of it; False when what a station says of a
        later one shows that this one was missed."""
