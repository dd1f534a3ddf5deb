"""Serial lines and IP links in memory, between the agent and the simulated world.

A line or link can be cut at any time. Both sides notice this in the same way as with real lines and
links.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from fieldagent.agent.channels.flight_recorder import FlightRecorder
from fieldagent.agent.channels.serial_port import PortLost, SerialPort
from fieldagent.http.web_socket import WebSocketClosed


class _LineBuffer:
    """Bytes that wait in one direction of a serial line."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._news = trio.Event()
        self.ended = False

    def add(self, data: bytes) -> None:
        self._data += data
        self._wake()

    def close(self) -> None:
        self.ended = True
        self._wake()

    def clear(self) -> None:
        self._data.clear()

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def get(self) -> bytes:
        await trio.lowlevel.checkpoint()
        while not self._data:
            if self.ended:
                return b""
            await self._news.wait()
        data = bytes(self._data)
        self._data.clear()
        return data


class _LineEnd:
    """One end of a serial line, with the methods that `SerialPort` and the simulators use."""

    def __init__(self, incoming: _LineBuffer, outgoing: _LineBuffer) -> None:
        self._hears = incoming
        self._outgoing = outgoing

    async def receive_some(self, most: int) -> bytes:
        return await self._hears.get()

    async def send_all(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        if self._outgoing.ended:
            raise trio.BrokenResourceError
        self._outgoing.add(data)


class SimulatedLines:
    """All serial lines, by name. Replaces `open_pty` and `open_serial`."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[_LineBuffer, _LineBuffer]] = {}

    @asynccontextmanager
    async def open_pty(self, name: Path) -> AsyncIterator[Any]:
        """Open the modem's end of a line within the context. Meanwhile, `open_serial` can open the
        other end.
        """
        to_agent, from_agent = self._lines[str(name)] = _LineBuffer(), _LineBuffer()
        try:
            yield _LineEnd(from_agent, to_agent)
        finally:
            del self._lines[str(name)]
            to_agent.close()
            from_agent.close()

    @asynccontextmanager
    async def open_serial(
        self, path: str, baud: int, recorder: FlightRecorder | None = None
    ) -> AsyncIterator[SerialPort]:
        """Open the agent's end of a line within the context. Bytes that were sent to the agent
        before are lost. Raises PortLost if the line does not exist.
        """
        await trio.lowlevel.checkpoint()
        if path not in self._lines:
            raise PortLost(f"{path} cannot be opened: no such file or directory")
        to_agent, from_agent = self._lines[path]
        to_agent.clear()
        yield SerialPort(path, _LineEnd(to_agent, from_agent), recorder)  # type: ignore[arg-type]


class Wire:
    """A WebSocket connection with two ends. If `swallow` is True, messages are dropped, and their
    senders do not notice.
    """

    def __init__(self) -> None:
        self.swallow = False
        self._end: tuple[int, str] | None = None
        self._queues: tuple[deque[bytes], deque[bytes]] = (deque(), deque())
        self._news = trio.Event()
        self.ends = (WireEnd(self, 0), WireEnd(self, 1))

    def cut_connection(
        self, code: int = 1006, reason: str = "the connection was broken off"
    ) -> None:
        """End the connection for both sides. Each side can still read the messages that have
        arrived. After that, it gets WebSocketClosed with the values of the first cut.
        """
        self._end = self._end or (code, reason)
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def send(self, side: int, message: bytes) -> None:
        """Send a message from `side`, which is 0 or 1, to the other side. The method never waits
        for space. Raises WebSocketClosed if the connection was cut.
        """
        await trio.lowlevel.checkpoint()
        if self._end:
            raise WebSocketClosed(*self._end)
        if not self.swallow:
            self._queues[1 - side].append(message)
            self._wake()

    async def receive(self, side: int) -> bytes:
        """Wait for the next message to `side`. Messages that arrived before the end of the
        connection are still returned. Raises WebSocketClosed after the last of these messages.
        """
        await trio.lowlevel.checkpoint()
        while not self._queues[side]:
            if self._end:
                raise WebSocketClosed(*self._end)
            await self._news.wait()
        return self._queues[side].popleft()


class WireEnd:
    """One end of a WebSocket, with the methods that a link uses."""

    date = ""
    """Date in the handshake. It is empty, because the simulated clock is trusted and needs no time
    from the hub."""

    def __init__(self, wire: Wire, side: int) -> None:
        self._wire = wire
        self._side = side

    async def send(self, message: bytes) -> None:
        """Send to the other end. Raises WebSocketClosed."""
        await self._wire.send(self._side, message)

    async def receive(self) -> bytes:
        """Wait for a message from the other end. Raises WebSocketClosed."""
        return await self._wire.receive(self._side)

    async def close(self, code: int, reason: str) -> None:
        """End the connection for both sides. If the wire drops messages, the other side does not
        notice the end.
        """
        await trio.lowlevel.checkpoint()
        if not self._wire.swallow:
            self._wire.cut_connection(code, reason)

    async def aclose(self) -> None:
        """Cut the connection for both sides without a close frame, as if a socket had failed."""
        self._wire.cut_connection()
        await trio.lowlevel.checkpoint()
