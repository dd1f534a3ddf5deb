"""Puts the simulated 9704 at the other end of a real serial line: a pty that can be unplugged."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import trio

from fieldagent.extensions.lab.simulator.imt_modem import SimulatedImtModem
from fieldagent.extensions.lab.simulator.pty_port import NOISE, is_understood, open_pty
from fieldagent.system import waits

SEGMENT_MAX = 5.0
"""Seconds in which a segment is given. The real modem waits for 0.3."""


class ImtPort:
    """The owner calls `run`; `poke` after whatever made the modem speak unasked."""

    def __init__(self, modem: SimulatedImtModem, link: Path, *, latency: float) -> None:
        self.modem = modem
        self.link = link
        """The name under which the serial line is found, whichever pty it is."""
        self.latency = latency
        """Seconds that a message is on its way."""
        self.baud: int | None = None
        """At which it talks; None: at whichever the host does."""
        self.powered_alone = False
        """The modem keeps its power when its port is unplugged."""
        self._plugged = trio.Event()
        self._plugged.set()
        self._unplugged = trio.CancelScope()
        self._poked = trio.Event()

    def poke(self) -> None:
        """Let it say what it has to say."""
        self._poked.set()
        self._poked = trio.Event()

    def unplug(self) -> None:
        """Take its port away."""
        if self._plugged.is_set():
            self._plugged = trio.Event()
            self._unplugged.cancel()

    def plug(self) -> None:
        """Put it back."""
        self._plugged.set()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> NoReturn:
        """Serve the port, for ever; started once it is there."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._carry)
            nursery.start_soon(self._mind_segments)
            while True:
                await self._plugged.wait()
                with trio.CancelScope() as self._unplugged:
                    await self._serve(task_status)
                # Started once: later plugs are nobody's start.
                task_status = trio.TASK_STATUS_IGNORED
                if not self.powered_alone:
                    self.modem.reset()

    async def _serve(self, task_status: trio.TaskStatus[None]) -> None:
        async with open_pty(self.link) as line, trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, line)
            nursery.start_soon(self._speak, line)
            task_status.started()

    async def _listen(self, line: trio.lowlevel.FdStream) -> None:
        while True:
            data = await line.receive_some(4096)
            if is_understood(line, self.baud):
                self.modem.receive_data(data)
            self.poke()

    async def _speak(self, line: trio.lowlevel.FdStream) -> None:
        while True:
            while data := self.modem.data_to_send():
                await line.send_all(data if is_understood(line, self.baud) else NOISE)
            await self._poked.wait()

    async def _mind_segments(self) -> None:
        """A host that was killed gives no more of them."""
        while True:
            while (wanted := self.modem.since_boot.wanted) is None:
                await self._poked.wait()
            with waits.move_on_after(SEGMENT_MAX) as limit:
                while self.modem.since_boot.wanted == wanted:
                    await self._poked.wait()
            if limit.cancelled_caught:
                self.modem.miss_segment()
                self.poke()

    async def _carry(self) -> None:
        """Messages go on, whatever becomes of the port."""
        while True:
            while not self.modem.in_transit:
                await self._poked.wait()
            with waits.move_on_after(self.latency) as arrives:
                while self.modem.in_transit:
                    await self._poked.wait()
            if arrives.cancelled_caught:
                self.modem.finish_transit()
                self.poke()
