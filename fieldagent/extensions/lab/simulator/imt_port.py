"""Connects the simulated 9704 to a real serial line: a pty that can be unplugged."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import trio

from fieldagent.extensions.lab.simulator.imt_modem import SimulatedImtModem
from fieldagent.extensions.lab.simulator.pty_port import NOISE_BYTES, is_understood, open_pty
from fieldagent.system import waits

SEGMENT_MAX_S = 5.0
"""Seconds that the modem waits for a segment. The real modem waits only 0.3 s."""


class ImtPort:
    """Serial port of a simulated 9704. The owner calls `run`, and calls `poke` after each event
    that makes the modem send something without a request.
    """

    def __init__(self, modem: SimulatedImtModem, link: Path, *, latency: float) -> None:
        self.modem = modem
        self.link = link
        """Path of the serial line. It remains the same if another pty is used."""
        self.latency = latency
        """Seconds that a message needs to reach the network."""
        self.baud: int | None = None
        """Baud rate of the modem. If None, the modem accepts any rate of the host."""
        self.has_own_power = False
        """True if the modem keeps its power when the port is unplugged."""
        self._plugged = trio.Event()
        self._plugged.set()
        self._unplugged = trio.CancelScope()
        self._poked = trio.Event()

    def poke(self) -> None:
        """Wake the task that sends the modem's waiting output."""
        self._poked.set()
        self._poked = trio.Event()

    def unplug(self) -> None:
        """Remove the serial line, so that its host gets an error. The modem also loses its power,
        unless `has_own_power` is True.
        """
        if self._plugged.is_set():
            self._plugged = trio.Event()
            self._unplugged.cancel()

    def plug(self) -> None:
        """Restore the serial line with the same name."""
        self._plugged.set()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> NoReturn:
        """Serve the port until cancelled. The task status reports when the port exists."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._carry)
            nursery.start_soon(self._guard_segments)
            while True:
                await self._plugged.wait()
                with trio.CancelScope() as self._unplugged:
                    await self._serve(task_status)
                # trio accepts only one report of the start, and this was the first.
                task_status = trio.TASK_STATUS_IGNORED
                if not self.has_own_power:
                    self.modem.reset()

    async def _serve(self, task_status: trio.TaskStatus[None]) -> None:
        async with open_pty(self.link) as line, trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, line)
            nursery.start_soon(self._write_output, line)
            task_status.started()

    async def _listen(self, line: trio.lowlevel.FdStream) -> None:
        while True:
            data = await line.receive_some(4096)
            if is_understood(line, self.baud):
                self.modem.receive_data(data)
            self.poke()

    async def _write_output(self, line: trio.lowlevel.FdStream) -> None:
        while True:
            while data := self.modem.data_to_send():
                await line.send_all(data if is_understood(line, self.baud) else NOISE_BYTES)
            await self._poked.wait()

    async def _guard_segments(self) -> None:
        """If the host does not send the segments of a message, end the message. A host that was
        killed sends no more segments.
        """
        while True:
            while (wanted_segment := self.modem.volatile_state.requested_segment) is None:
                await self._poked.wait()
            with waits.move_on_after(SEGMENT_MAX_S) as limit:
                while self.modem.volatile_state.requested_segment == wanted_segment:
                    await self._poked.wait()
            if limit.cancelled_caught:
                self.modem.miss_segment()
                self.poke()

    async def _carry(self) -> None:
        """Complete the messages on their way to the network, even if the port is unplugged."""
        while True:
            while not self.modem.has_transit:
                await self._poked.wait()
            with waits.move_on_after(self.latency) as arrives:
                while self.modem.has_transit:
                    await self._poked.wait()
            if arrives.cancelled_caught:
                self.modem.finish_transit()
                self.poke()
