"""A serial line as a trio stream: opened and configured by pyserial, read and written by trio."""

from __future__ import annotations

import errno
import os
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import serial
import trio

from fieldagent.agent.channels.flight_recorder import FlightRecorder

_TAKEN = (errno.EAGAIN, errno.EBUSY)
"""It is locked (flock(2)), or another program has it for itself alone (TIOCEXCL)."""


class PortLost(Exception):
    """The port is not there, cannot be opened, or went away; the text is for people."""


class PortInUse(PortLost):
    """Another program has the port; the text says which, and how to end that."""


class SerialPort:
    """Reads and writes bytes; PortLost when the other end is gone."""

    def __init__(
        self, path: str, stream: trio.abc.Stream, recorder: FlightRecorder | None = None
    ) -> None:
        self._path = path
        self._stream = stream
        self._recorder = recorder or FlightRecorder()

    async def read(self) -> bytes:
        """Wait for some bytes, at most 4096, and return them; never empty. Raises PortLost."""
        try:
            data = await self._stream.receive_some(4096)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise PortLost(f"{self._path} went away ({error})") from None
        if not data:
            raise PortLost(f"{self._path} went away")
        self._recorder.came(bytes(data))
        return bytes(data)

    async def write(self, data: bytes) -> None:
        self._recorder.sent(data)
        try:
            await self._stream.send_all(data)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise PortLost(f"{self._path} went away ({error})") from None


@asynccontextmanager
async def open_serial(
    path: str, baud: int, recorder: FlightRecorder | None = None
) -> AsyncIterator[SerialPort]:
    """Open a port, 8N1 without flow control, for us alone; what goes over it goes to the
    `recorder`, too. Raises PortLost, and PortInUse where another program has it.

    Opening and closing happen in a thread: a driver may block in either.
    """
    opening = partial(serial.Serial, path, baud, timeout=0, exclusive=True)
    try:
        line = await trio.to_thread.run_sync(opening)
    except (serial.SerialException, OSError, ValueError, termios.error) as error:
        if getattr(error, "errno", None) in _TAKEN:
            from fieldagent.agent.channels.port_holder import held_by

            raise PortInUse(f"{path} {held_by(path)}") from None
        raise PortLost(f"{path} cannot be opened: {_why(error)}") from None
    try:
        try:
            _read_nothing_only_at_the_end(line.fileno())
        except (OSError, termios.error) as error:  # termios.error is no OSError
            raise PortLost(f"{path} went away while it was opened ({error.args[-1]})") from None
        async with trio.lowlevel.FdStream(os.dup(line.fileno())) as stream:
            if recorder is not None:
                recorder.begin(path, baud)
            yield SerialPort(path, stream, recorder)
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(line.close)


def _read_nothing_only_at_the_end(descriptor: int) -> None:
    """With VMIN 0, as pyserial leaves it, a line that is silent reads like one that is gone."""
    attributes = termios.tcgetattr(descriptor)
    attributes[6][termios.VMIN] = 1
    termios.tcsetattr(descriptor, termios.TCSANOW, attributes)


def _why(error: Exception) -> str:
    number = getattr(error, "errno", None)
    return os.strerror(number) if isinstance(number, int) else str(error)
