"""Records the IP link's messages in the flight recorder."""

from __future__ import annotations

from fieldagent.agent.channels.flight_recorder import FlightRecorder
from fieldagent.http.link_session import LinkSocket
from fieldagent.http.web_socket import WebSocketClosed
from fieldagent.wire import trace


class RecordedSocket:
    """Implements `http.link_session.LinkSocket` on top of another socket."""

    def __init__(self, socket: LinkSocket, recorder: FlightRecorder, address: str) -> None:
        self._socket = socket
        self._recorder = recorder
        recorder.kind = trace.LINK
        recorder.record_event(f"connected to {address}")

    async def receive(self) -> bytes:
        """Return the next message. Raises WebSocketClosed."""
        try:
            message = await self._socket.receive()
        except WebSocketClosed as closed:
            self._recorder.record_event(f"closed by the hub: {closed.code} {closed.reason}")
            raise
        self._recorder.record_received(message)
        return message

    async def send(self, message: bytes) -> None:
        """Send one message. Raises WebSocketClosed."""
        self._recorder.record_sent(message)
        await self._socket.send(message)

    async def close(self, code: int, reason: str) -> None:
        """Close the WebSocket with `code` and `reason`, and wait until the peer closes it too."""
        self._recorder.record_event(f"closed by the kit: {code} {reason}")
        await self._socket.close(code, reason)
