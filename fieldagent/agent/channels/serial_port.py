"""Serial line for trio. pyserial opens and configures it; trio reads and writes it."""

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

_LOCKED_ERRNOS = (errno.EAGAIN, errno.EBUSY)
"""Error numbers of a port that is locked (flock(2)) or opened exclusively (TIOCEXCL) by another
program."""


class PortLost(Exception):
    """The port is absent, cannot be opened, or was lost. The message is for people."""


class PortInUse(PortLost):
    """Another program uses the port. The message contains the program's name, and how to end it."""


class SerialPort:
    """An open serial port that reads and writes bytes. Raises PortLost if the device is lost."""

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
        self._recorder.record_received(bytes(data))
        return bytes(data)

    async def write(self, data: bytes) -> None:
        self._recorder.record_sent(data)
        try:
            await self._stream.send_all(data)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise PortLost(f"{self._path} went away ({error})") from None


@asynccontextmanager
async def open_serial(
    path: str, baud: int, recorder: FlightRecorder | None = None
) -> AsyncIterator[SerialPort]:
    """Open a port exclusively, with 8N1 and without flow control. `recorder` records its traffic.
    Raises PortInUse if another program uses the port, and PortLost for other errors.

    A thread opens and closes the port, because the port's driver may block.
    """
    opening = partial(serial.Serial, path, baud, timeout=0, exclusive=True)
    try:
        line = await trio.to_thread.run_sync(opening)
    except (serial.SerialException, OSError, ValueError, termios.error) as error:
        if getattr(error, "errno", None) in _LOCKED_ERRNOS:
            from fieldagent.agent.channels.port_holder import describe_holder

            raise PortInUse(f"{path} {describe_holder(path)}") from None
        raise PortLost(f"{path} cannot be opened: {_describe_error(error)}") from None
    try:
        try:
            _make_reads_wait(line.fileno())
        # Catch termios.error too, because it is not an OSError.
        except (OSError, termios.error) as error:
            raise PortLost(f"{path} disappeared while it was opened ({error.args[-1]})") from None
        async with trio.lowlevel.FdStream(os.dup(line.fileno())) as stream:
            if recorder is not None:
                recorder.begin(path, baud)
            yield SerialPort(path, stream, recorder)
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(line.close)


def _make_reads_wait(descriptor: int) -> None:
    """Set VMIN to 1, so that only a lost line ends a read with no bytes. pyserial sets VMIN to 0,
    with which a read on a silent line also returns no bytes.
    """
    attributes = termios.tcgetattr(descriptor)
    attributes[6][termios.VMIN] = 1
    termios.tcsetattr(descriptor, termios.TCSANOW, attributes)


def _describe_error(error: Exception) -> str:
    number = getattr(error, "errno", None)
    return os.strerror(number) if isinstance(number, int) else str(error)
