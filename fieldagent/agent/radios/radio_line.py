"""Line to a radio: a serial port, or TCP if the radio has Wi-Fi or Ethernet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol
from urllib.parse import urlsplit

import trio

from fieldagent.agent.channels.serial_port import PortLost, SerialPort, open_serial

TCP = "tcp://"
CONNECT_TIMEOUT_S = 10.0
"""Longest time in seconds until a radio accepts a connection."""


class RadioLine(Protocol):
    """Serial line or TCP connection to a radio. The methods raise PortLost when the radio is
    lost.
    """

    async def read(self) -> bytes: ...
    async def write(self, data: bytes) -> None: ...


def is_serial(place: str) -> bool:
    """Return True if a radio is at a serial port, False if it is at a TCP address."""
    return not place.startswith(TCP)


@asynccontextmanager
async def open_line(place: str, baud: int, tcp_port: int) -> AsyncIterator[SerialPort]:
    """Open a serial port, or a radio's TCP port as `tcp://host:port`. `tcp_port` is the default
    port. Raises PortLost.
    """
    if is_serial(place):
        async with open_serial(place, baud) as port:
            yield port
        return
    try:
        parts = urlsplit(place)
        with trio.fail_after(CONNECT_TIMEOUT_S):
            stream = await trio.open_tcp_stream(parts.hostname or "", parts.port or tcp_port)
    # Report a malformed port or host name, too.
    except (OSError, ValueError, trio.TooSlowError) as error:
        raise PortLost(f"{place} cannot be reached: {str(error) or 'no answer'}") from None
    async with stream:
        yield SerialPort(place, stream)
