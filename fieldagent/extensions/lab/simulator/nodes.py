"""Simulated radio nodes on serial lines, which share one radio channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from random import Random
from typing import NoReturn, Protocol, TypeAlias

import trio

from fieldagent.extensions.lab.simulator.air import SharedAir
from fieldagent.extensions.lab.simulator.node import SimulatedNode
from fieldagent.extensions.lab.simulator.pty_port import open_pty
from fieldagent.http.listeners import get_port, open_listeners
from fieldagent.system.lazy_dataclass import dataclass

Say = Callable[[str], None]


class EndOfLine(Exception):
    """Error: the host has disconnected."""


class SimulatedRadio(Protocol):
    """Interface of all simulated radios. `number` is the radio's station number on the channel
    (`simulator.air`). All times are in seconds of the same clock.
    """

    number: int
    busy: bool
    """True if the channel is never free for this radio."""

    @property
    def deadline(self) -> float:
        """Return the time on trio's clock when `tick` is due."""

    def reboot(self) -> None:
        """Clear all state, as after a power failure."""

    def start(self, now: float) -> None:
        """Send the output of a radio that has just been switched on."""

    def receive_data(self, data: bytes, now: float) -> None:
        """Process bytes from the host. A message may be split between two calls."""

    def data_to_send(self) -> bytes:
        """Return the bytes for the host and remove them from the output. The result is empty if
        there is no output.
        """

    def leave_host(self) -> None:
        """Process the event that the host disconnects or that another host replaces it."""

    def receive_packet(self, packet: bytes, now: float) -> None:
        """Receive a packet from the air. The radio hears nothing while it transmits."""

    def tick(self, now: float) -> None:
        """Do everything that is due: end a transmission, begin the next transmission, or send
        reports to the host.
        """


RadioKind: TypeAlias = "Callable[[int, SharedAir, Random], SimulatedRadio]"


@dataclass(slots=True)
class Socket:
    """Place of one node on the bench: its serial line or TCP port, and whether it is plugged in."""

    node: SimulatedRadio
    link: Path | int
    """Path of the serial line, which remains the same if another pty is used. If the node is
    reached by TCP, a loopback port."""
    plugged: trio.Event = field(default_factory=trio.Event)
    unplugged: trio.CancelScope = field(default_factory=trio.CancelScope)
    has_output: trio.Event = field(default_factory=trio.Event)
    """Set when the node may have output. It is then replaced by a new event."""

    def poke(self) -> None:
        """Wake the task that sends the node's output."""
        self.has_output.set()
        self.has_output = trio.Event()


class Nodes:
    """Runs the nodes. The owner calls `run`. `say` is called with a line for each packet on the
    air.
    """

    def __init__(
        self,
        air: SharedAir,
        links: Sequence[Path | int],
        say: Say,
        kind: RadioKind = SimulatedNode,
    ) -> None:
        self.air = air
        self._say = say
        self._changed = trio.Event()
        """Set when an event may be due earlier than the event for which the task waits."""
        self.sockets = [
            Socket(kind(number, air, air.random), link) for number, link in enumerate(links, 1)
        ]
        air.stations[:] = [socket.node.number for socket in self.sockets]

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> NoReturn:
        """Run the nodes until cancelled. The task status reports when each node has its serial
        line.
        """
        async with trio.open_nursery() as nursery:
            for socket in self.sockets:
                socket.plugged.set()
                await nursery.start(self._run_node, socket)
            nursery.start_soon(self._run_clock)
            task_status.started()
            await trio.sleep_forever()
        raise AssertionError("runs until cancelled")

    def unplug(self, socket: Socket) -> None:
        """Remove the line and the power. When the node is plugged in, it restarts."""
        if socket.plugged.is_set():
            socket.plugged = trio.Event()
            socket.unplugged.cancel()
            # The node loses its waiting packets together with the power.
            socket.node.reboot()

    def plug(self, socket: Socket) -> None:
        """Restore the line with the same name or port."""
        socket.plugged.set()

    def drain(self, socket: Socket, percent: int) -> None:
        """Set the battery charge of a node in per cent."""
        assert isinstance(socket.node, SimulatedNode)
        socket.node.drain(percent)
        self._poke(socket)

    def reboot(self, socket: Socket) -> None:
        """Restart a node while its line is open. The host notices the restart."""
        socket.node.reboot()
        socket.node.start(trio.current_time())
        self._poke(socket)

    async def _run_node(
        self, socket: Socket, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        while True:
            await socket.plugged.wait()
            with trio.CancelScope() as socket.unplugged:
                socket.node.reboot()
                if isinstance(socket.link, int):
                    await self._serve(socket, socket.link, task_status)
                else:
                    async with open_pty(socket.link) as line, trio.open_nursery() as nursery:
                        nursery.start_soon(self._listen, socket, line)
                        nursery.start_soon(self._write_output, socket, line)
                        task_status.started()
            # trio accepts only one report of the start, and this was the first.
            task_status = trio.TASK_STATUS_IGNORED

    async def _serve(
        self, socket: Socket, port: int, task_status: trio.TaskStatus[None]
    ) -> NoReturn:
        """Accept connections. A new connection replaces the connection of the current host."""
        (listening,) = open_listeners(port, ["127.0.0.1"])
        socket.link = get_port([listening])
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
        async with listener, trio.open_nursery() as nursery:
            task_status.started()
            present = trio.CancelScope()
            while True:
                stream = await listener.accept()
                present.cancel()
                present = trio.CancelScope()
                nursery.start_soon(self._serve_stream, socket, stream, present)

    async def _serve_stream(
        self, socket: Socket, stream: trio.SocketStream, present: trio.CancelScope
    ) -> None:
        socket.node.leave_host()
        async with stream:
            with present:
                try:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._listen, socket, stream)
                        nursery.start_soon(self._write_output, socket, stream)
                except* (trio.BrokenResourceError, EndOfLine):
                    socket.node.leave_host()

    async def _listen(self, socket: Socket, line: trio.abc.Stream) -> NoReturn:
        while True:
            data = bytes(await line.receive_some(4096))
            if not data:
                raise EndOfLine
            socket.node.receive_data(data, trio.current_time())
            self._poke(socket)

    async def _write_output(self, socket: Socket, line: trio.abc.Stream) -> NoReturn:
        while True:
            has_output = socket.has_output
            if data := socket.node.data_to_send():
                await line.send_all(data)
            else:
                await has_output.wait()

    def _poke(self, socket: Socket) -> None:
        socket.poke()
        self._changed.set()

    async def _run_clock(self) -> NoReturn:
        while True:
            self._changed = trio.Event()
            due = min(self.air.find_next_change(), *(s.node.deadline for s in self.sockets))
            with trio.move_on_at(due):
                await self._changed.wait()
            now = trio.current_time()
            for socket in self.sockets:
                before = len(self.air.flights)
                if socket.node.deadline <= now:
                    socket.node.tick(now)
                    socket.poke()
                if len(self.air.flights) > before:
                    size = len(self.air.flights[-1].packet)
                    self._say(f"node {socket.node.number} transmits {size} bytes")
            for number, packet in self.air.remove_arrived(now):
                socket = self.sockets[number - 1]
                if socket.plugged.is_set():
                    self._say(f"node {number} hears {len(packet)} bytes")
                    socket.node.receive_packet(packet, now)
                    socket.poke()
