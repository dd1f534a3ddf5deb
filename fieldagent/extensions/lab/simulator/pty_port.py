"""Connects the simulated modem to a real serial line: a pty that can be unplugged."""

from __future__ import annotations

import os
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NoReturn

import trio

from fieldagent.extensions.lab.simulator.sbd_modem import SimulatedModem
from fieldagent.system import waits

SPEEDS = {
    getattr(termios, name): int(name[1:])
    for name in dir(termios)
    if name[1:].isdigit() and name[0] == "B"
}
"""Baud rates by the constant in `termios`."""
PAYLOAD_MAX_S = 60.0
"""Seconds that +SBDWB waits for its payload."""


NOISE_BYTES = b"\xf8\x00\xf8"
"""Bytes that a host receives if it uses the wrong baud rate."""


@asynccontextmanager
async def open_pty(name: Path) -> AsyncIterator[trio.lowlevel.FdStream]:
    """Open a serial line within the context, and yield the simulator's end. `name` is the path of
    the other end.
    """
    with _open_pty(name) as our_end:
        async with trio.lowlevel.FdStream(our_end) as line:
            yield line


class NoLine(Exception):
    """Error: the serial line cannot have this name. The text contains the reason and the fix."""


@contextmanager
def _open_pty(name: Path) -> Iterator[int]:
    """Open a pty within the context, with the symbolic link `name` to it. Raises NoLine if the name
    is in use or cannot be created.
    """
    our_end, their_end = os.openpty()
    line = os.ttyname(their_end)
    try:
        tty.setraw(their_end)
        _make_link(line, name)
        yield our_end
    finally:
        # Another simulator may have taken the name meanwhile. Do not remove its link.
        if name.is_symlink() and name.readlink() == Path(line):
            name.unlink(missing_ok=True)
        os.close(their_end)


def _make_link(line: str, name: Path) -> None:
    """Create the symbolic link. Raises NoLine if the name is in use or cannot be created."""
    try:
        name.parent.mkdir(parents=True, exist_ok=True)
        # Remove the link that a killed simulator has left.
        if name.is_symlink():
            name.unlink(missing_ok=True)
        name.symlink_to(line)
    except OSError as error:
        reason = error.strerror.lower() if error.strerror else str(error)
        raise NoLine(f"{name} cannot be the name of a port ({reason}): choose another") from None


def is_understood(line: trio.lowlevel.FdStream, baud: int | None) -> bool:
    """Return True if the host uses the modem's baud rate. If `baud` is None, any rate is
    accepted.
    """
    return baud is None or SPEEDS.get(termios.tcgetattr(line.fileno())[5]) == baud


class PtyPort:
    """Serial port of a simulated modem. The owner calls `run`, and calls `poke` after each event
    that makes the modem send something without a request.
    """

    def __init__(self, modem: SimulatedModem, link: Path, *, latency: float) -> None:
        self.modem = modem
        self.link = link
        """Path of the serial line. It remains the same if another pty is used."""
        self.latency = latency
        """Duration of a session in seconds."""
        self.baud: int | None = None
        """Baud rate of the modem. If None, the modem accepts any rate of the host."""
        self._plugged = trio.Event()
        self._plugged.set()
        self._unplugged = trio.CancelScope()
        self._poked = trio.Event()

    def poke(self) -> None:
        """Send the modem's output, and run the session that the modem has begun, if any."""
        self._poked.set()

    def unplug(self) -> None:
        """Remove the line and switch off the modem."""
        if self._plugged.is_set():
            self._plugged = trio.Event()
            self._unplugged.cancel()

    def plug(self) -> None:
        """Plug the line in again, at the same path."""
        self._plugged.set()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> NoReturn:
        """Serve the line while it is plugged in, until cancelled. The task status reports when the
        line exists.
        """
        while True:
            await self._plugged.wait()
            with trio.CancelScope() as self._unplugged:
                await self._serve(task_status)
            # trio accepts only one report of the start, and this was the first.
            task_status = trio.TASK_STATUS_IGNORED
            self.modem.start_brown_out()

    async def _serve(self, task_status: trio.TaskStatus[None]) -> None:
        async with open_pty(self.link) as line, trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, line)
            nursery.start_soon(self._write_output, line)
            nursery.start_soon(self._run_sessions)
            task_status.started()

    async def _listen(self, line: trio.lowlevel.FdStream) -> None:
        while True:
            if self.modem.awaits_payload:
                with trio.move_on_after(PAYLOAD_MAX_S) as limit:
                    await self._receive_data(line)
                if limit.cancelled_caught:
                    self.modem.end_payload_wait()
            else:
                await self._receive_data(line)
            self.poke()

    async def _receive_data(self, line: trio.lowlevel.FdStream) -> None:
        data = await line.receive_some(4096)
        if is_understood(line, self.baud):
            self.modem.receive_data(data)

    async def _write_output(self, line: trio.lowlevel.FdStream) -> None:
        while True:
            await self._poked.wait()
            self._poked = trio.Event()
            while data := self.modem.data_to_send():
                await line.send_all(data if is_understood(line, self.baud) else NOISE_BYTES)

    async def _run_sessions(self) -> None:
        while True:
            while not self.modem.session:
                await self._wait_for_session()
            await waits.sleep(self.latency)
            self.modem.finish_session()
            self.poke()

    async def _wait_for_session(self) -> None:
        await self._poked.wait()
        await trio.lowlevel.checkpoint()
