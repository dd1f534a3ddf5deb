"""Connection between the operator's gateway and a real hub, which uses DirectIP in both directions.

MO messages are sent in order. Each is repeated until the hub confirms it. MT messages are checked
in the same way as by the real gateway. They wait for the modem, which gets a ring alert.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import field
from functools import partial
from math import inf

import trio

from fieldagent.extensions.lab.simulator.mt_queue import MtQueue
from fieldagent.http.listeners import get_port, open_listeners
from fieldagent.hub.operator.directip import receive_elements
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.wording import format_count
from fieldagent.wire.directip import (
    Confirmation,
    DirectIpMo,
    DirectIpMt,
    Flags,
    encode_message,
    parse_mo_confirmation,
    parse_mobile_terminated,
)
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.sbd import MT_BYTES

QUEUE_MAX = 50
"""Largest number of MT messages that the gateway keeps for one modem."""
RETRY_AFTER_S = 2.0
"""Seconds until an unconfirmed MO message is sent again."""
EXCHANGE_TIMEOUT_S = 30.0
"""Seconds within which one exchange must end."""

IMEI_UNKNOWN, TOO_LARGE, EMPTY, QUEUE_FULL = -2, -3, -4, -5


@dataclass
class Faults:
    """Failures that the next MT requests will have."""

    status: int | None = None
    """Status that is sent once instead of the true status."""
    silent: int = 0
    """Number of requests that are received and not answered."""
    cut: int = 0
    """Number of next requests that are received without an answer: the connection is closed."""
    late: float = 0.0
    """Delay of each answer in seconds."""


@dataclass
class HubSide:
    host: str
    port: int
    imei: str
    queue: MtQueue
    say: Callable[[str], None]
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        self._send, self._waiting = trio.open_memory_channel[DirectIpMo](inf)
        self._reference = 0

    def receive_message(self, imei: str, momsn: int, body: bytes) -> None:
        """Store an MO message in memory for `send_messages`. There is no limit."""
        self._reference += 1
        now = int(time.time())
        self._send.send_nowait(DirectIpMo(self._reference, imei, 0, momsn, 0, now, body))

    async def send_messages(self) -> None:
        """Send MO messages to the hub until cancelled."""
        async for message in self._waiting:
            while not await self._send_message(message):
                await trio.sleep(RETRY_AFTER_S)
            self.say(f"   the hub has MO {message.momsn}")

    async def _send_message(self, message: DirectIpMo) -> bool:
        try:
            with trio.fail_after(EXCHANGE_TIMEOUT_S):
                async with await trio.open_tcp_stream(self.host, self.port) as stream:
                    await stream.send_all(encode_message(message))
                    confirmed = parse_mo_confirmation(await receive_elements(stream))
        except (OSError, trio.TooSlowError, trio.BrokenResourceError, RemoteProtocolError) as error:
            self.say(f"   the hub did not accept MO {message.momsn}: {error}")
            return False
        if not confirmed:
            self.say(f"   the hub refused MO {message.momsn} for now")
        return confirmed

    async def serve(
        self,
        port: int,
        ring_modem: Callable[[], None],
        *,
        task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Receive MT messages on loopback until cancelled. The task status reports the port.
        `ring_modem` is called after each MT message or ring alert. Raises ListenFailed if another
        program uses the port.
        """
        (listening,) = open_listeners(port, ["127.0.0.1"])
        task_status.started(get_port([listening]))
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
        await trio.serve_listeners(partial(self._serve_one, ring_modem), [listener])

    async def _serve_one(self, ring_modem: Callable[[], None], stream: trio.SocketStream) -> None:
        try:
            with trio.move_on_after(EXCHANGE_TIMEOUT_S):
                request = parse_mobile_terminated(await receive_elements(stream))
            with waits.move_on_after(EXCHANGE_TIMEOUT_S + self.faults.late):
                await self._answer_message(ring_modem, stream, request)
        except (trio.BrokenResourceError, RemoteProtocolError) as error:
            self.say(f"an MT request could not be read: {error}")

    async def _answer_message(
        self, ring_modem: Callable[[], None], stream: trio.SocketStream, request: DirectIpMt
    ) -> None:
        faults = self.faults
        status = self._judge_message(request) if faults.status is None else faults.status
        faults.status = None
        if status >= 0:
            if request.payload:
                is_urgent = bool(request.flags & Flags.PRIORITY)
                self.queue.put(request.payload, priority=is_urgent)
            ring_modem()
        description = (
            f"MT of {format_count(len(request.payload), 'byte')}" if request.payload else "a ring"
        )
        self.say(f"{description} for {request.imei}: {status}")
        if faults.silent:
            faults.silent -= 1
            await trio.sleep_forever()
        if faults.cut:
            faults.cut -= 1
            return
        await waits.sleep(faults.late)
        answer = Confirmation(request.client_id, request.imei, 0, status)
        await stream.send_all(encode_message(answer))

    def _judge_message(self, request: DirectIpMt) -> int:
        if request.imei != self.imei:
            return IMEI_UNKNOWN
        if request.flags & Flags.RING_ONLY:
            return 0
        if not request.payload:
            return EMPTY
        if len(request.payload) > MT_BYTES:
            return TOO_LARGE
        if len(self.queue) >= QUEUE_MAX:
            return QUEUE_FULL
        return len(self.queue) + 1
