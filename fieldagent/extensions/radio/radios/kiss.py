"""A KISS TNC on a serial line or TCP. Each packet is the information field of a UI frame.

A successful write does not prove a transmission, because a TNC that finds no free channel silently
discards the frame. So the agent queries the TNC until no bytes wait in it. Then the agent waits for
the time that the frame takes at the slowest usual rate. If the TNC does not know the query, the
agent only waits for this time.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import (
    RadioLost,
    ReceivedPacket,
    ReceiveQueue,
    TransmitResult,
)
from fieldagent.agent.channels.serial_port import open_serial
from fieldagent.extensions.radio.contract import Radio, RadioPlace
from fieldagent.system import waits
from fieldagent.system.finding import Finding
from fieldagent.system.rate import EventRate
from fieldagent.system.wording import describe_reason
from fieldagent.wire import ax25, kiss
from fieldagent.wire.errors import RemoteProtocolError

log = logging.getLogger(__name__)

DESTINATION = ax25.Callsign("FIELDA")
CONNECT_MAX_S = 10.0
CHECK_TIMEOUT_S = 5.0
"""Seconds that `fieldagent check` waits for a connection."""
WRITE_TIMEOUT_S = 10.0
"""Longest time in seconds until a TNC takes a frame from its line."""
ANSWER_TIMEOUT_S = 2.0
"""Longest time in seconds for a TNC's answer with its waiting bytes."""
SILENCE_MAX_S = 10.0
"""Seconds without an answer after which a TNC that answered before is considered lost."""
QUERY_INTERVAL_S = 0.5
FRAME_WAIT_MAX_S = 55.0
"""Seconds after which a frame that still waits is reported as dropped. Dire Wolf discards a frame
that found no free channel for 60 seconds. After that, the frame would seem to be transmitted."""
BITRATE = 1200.0
"""Bits per second of the slowest usual radio. For a faster radio, the wait is only slightly too
long."""
TRANSMIT_LEAD_S = 0.5
"""Seconds before the first byte: the transmitter's delay, and its wait for a free channel."""


COMMAND_MODE_REASON = (
    "the TNC is in its command mode, and sends nothing: `KISS ON` and `RESTART` were sent to it"
)


class TncModem:
    """KISS TNC that implements `channels.radio_modem.RadioModem`."""

    def __init__(
        self,
        read: Callable[[], Awaitable[bytes]],
        write: Callable[[bytes], Awaitable[None]],
        call: ax25.Callsign,
        link: ChannelLink,
    ) -> None:
        self._read = read
        self._write = write
        self._call = call
        self._link = link
        self._deframer = kiss.KissDeframer()
        self._commands = kiss.CommandModeDetector()
        self._ear = ReceiveQueue()
        self._given_up = EventRate(trio.current_time)
        self._waiting: int | None = None
        self._reported = trio.Event()
        """Event that is set when the TNC reports its waiting bytes. A new event then replaces
        it."""
        self._can_report_queue: bool | None = None
        self._ignored = 0
        link.facts |= {"callsign": str(call), "ignoredFrames": 0, "damagedFrames": 0}

    async def transmit(self, packet: bytes, *, urgent: bool) -> TransmitResult:
        frame = ax25.encode(ax25.Frame(self._call, DESTINATION, packet))
        await self._send_frame(kiss.encode(frame))
        result = await self._wait_for_result()
        if result is not TransmitResult.DROPPED:
            # Wait for the transmission: a frame leaves the TNC's buffer when its transmission
            # begins.
            await waits.sleep(TRANSMIT_LEAD_S + len(frame) * 8 / BITRATE)
        return result

    async def _wait_for_result(self) -> TransmitResult:
        with trio.move_on_after(FRAME_WAIT_MAX_S):
            while self._can_report_queue is not False:
                waiting = await self._ask()
                if waiting == 0:
                    return TransmitResult.TRANSMITTED
                if waiting is not None:
                    await trio.sleep(QUERY_INTERVAL_S)
            return TransmitResult.UNKNOWN
        if count := self._given_up.count_event():
            log.warning("the TNC gave up %d packets: it finds no free channel", count)
        return TransmitResult.DROPPED

    async def _ask(self) -> int | None:
        """Query the TNC for the number of bytes that wait in it. Return the number, or None if the
        TNC does not report it. Raises RadioLost.
        """
        text, self._waiting = self._reported, None
        await self._send_frame(kiss.encode(kiss.QUERY, kiss.SET_HARDWARE))
        with trio.move_on_after(SILENCE_MAX_S if self._can_report_queue else ANSWER_TIMEOUT_S):
            await text.wait()
            return self._waiting
        if self._can_report_queue:
            raise RadioLost("the TNC does not answer any more")
        # Do not send the query again, because for some TNCs the command means something else.
        self._can_report_queue = False
        log.info("the TNC does not report its queue: packets are paced by time")
        return None

    async def _send_frame(self, data: bytes) -> None:
        with trio.move_on_after(WRITE_TIMEOUT_S):
            await self._write(data)
            return
        raise RadioLost(
            f"the TNC accepts no more data: not {len(data)} bytes in {WRITE_TIMEOUT_S:g} s"
        )

    async def receive(self) -> ReceivedPacket:
        return await self._ear.receive()

    async def listen(self) -> NoReturn:
        """Read frames from the TNC forever. Packets go to `receive`, numbers of waiting bytes go to
        `transmit`, and other frames are only counted. Raises RadioLost and PortLost.
        """
        while True:
            data = await self._read()
            if self._commands.hears_prompt(data):
                await self._leave_commands()
            for kind, content in self._deframer.receive_data(data):
                if content == kiss.QUERY and kind == kiss.SET_HARDWARE:
                    # Only a TNC in command mode returns our query, as an echo. Such a TNC shows no
                    # prompt while it waits for a line end.
                    await self._leave_commands()
                elif kind == kiss.DATA:
                    self._process_frame(content)
                elif kind == kiss.SET_HARDWARE:
                    self._store_waiting_bytes(kiss.parse_waiting_bytes(content))
                else:
                    self._ignored += 1
            self._link.facts["ignoredFrames"] = self._ignored
            self._link.facts["damagedFrames"] = self._deframer.damaged

    async def _leave_commands(self) -> NoReturn:
        await self._send_frame(kiss.LEAVE_COMMANDS)
        raise RadioLost(COMMAND_MODE_REASON)

    def _store_waiting_bytes(self, waiting: int | None) -> None:
        if waiting is not None:
            # Also accept an answer after `ANSWER_TIMEOUT_S`, because a slow line delays the first
            # answer.
            self._can_report_queue = True
            self._waiting = waiting
            self._reported.set()
            self._reported = trio.Event()

    def _process_frame(self, content: bytes) -> None:
        """Process a frame. Ignore frames to other addresses, and our own frames that a digipeater
        returns.
        """
        try:
            frame = ax25.decode(content)
        except RemoteProtocolError as error:
            self._deframer.damaged += 1
            log.debug("a frame from the TNC: %s", error)
            return
        if frame is None or frame.destination != DESTINATION or frame.source == self._call:
            self._ignored += 1
            return
        self._ear.add_packet(ReceivedPacket(frame.info))


@asynccontextmanager
async def open_tnc(place: RadioPlace, link: ChannelLink) -> AsyncIterator[TncModem]:
    """Open a TNC at a serial port or tcp://host:port. Raises RadioLost and PortLost, in exception
    groups.
    """
    call, address = ax25.parse_callsign(place.callsign), place.port
    if address.startswith("tcp://"):
        async with (
            await _connect(address) as stream,
            _serve(
                TncModem(_make_reader(stream, address), _make_writer(stream, address), call, link)
            ) as air,
        ):
            yield air
        return
    async with (
        open_serial(address, place.baud, link.recorder) as port,
        _serve(TncModem(port.read, port.write, call, link)) as air,
    ):
        yield air


@asynccontextmanager
async def _serve(air: TncModem) -> AsyncIterator[TncModem]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(air.listen)
        yield air
        nursery.cancel_scope.cancel()


async def _connect(place: str) -> trio.SocketStream:
    with trio.move_on_after(CONNECT_MAX_S):
        try:
            url = urlsplit(place)
            return await trio.open_tcp_stream(url.hostname or "", url.port or 8001)
        except (OSError, ValueError) as error:
            raise RadioLost(f"{place} cannot be reached ({error}): does the TNC run?") from None
    raise RadioLost(f"{place} does not answer within {CONNECT_MAX_S:g} s")


def _make_reader(stream: trio.SocketStream, place: str) -> Callable[[], Awaitable[bytes]]:
    async def read() -> bytes:
        try:
            data = bytes(await stream.receive_some(4096))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        if not data:
            raise RadioLost(f"{place} ended the connection")
        return data

    return read


def _make_writer(stream: trio.SocketStream, place: str) -> Callable[[bytes], Awaitable[None]]:
    async def write(data: bytes) -> None:
        try:
            await stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise RadioLost(f"{place} ended the connection") from None

    return write


def check_tnc(place: RadioPlace) -> Finding:
    """Check the TNC. For a serial port, check whether the port is usable; for a tcp:// address,
    whether a TCP connection succeeds. Return the result as a Finding.
    """
    if not place.port.startswith("tcp://"):
        from fieldagent.agent.channels.serial_check import check_serial_port

        return check_serial_port(Path(place.port))
    try:
        url = urlsplit(place.port)
        socket.create_connection((url.hostname or "", url.port or 8001), CHECK_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        reason = describe_reason(error)
        return Finding(
            False, f"{place.port} cannot be reached ({reason}): does the KISS modem run?"
        )
    return Finding(True, f"{place.port} can be reached")


RADIO = Radio(
    "kiss",
    "any KISS modem, on a serial port or tcp://host:port, with AX.25: docs/how-to/radio.md",
    open_tnc,
    check_tnc,
    needs=("radio-callsign",),
    says_callsign=True,
    facts={
        "callsign": "call sign of this station",
        "ignoredFrames": "number of frames for other stations",
        "damagedFrames": "number of frames that could not be read",
    },
)
