"""A radio node on a serial line as a `RadioModem`: the I/O around `wire.node`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import getrandbits
from typing import NoReturn

import trio

from fieldagent.agent.channels import serial_port
from fieldagent.agent.channels.air_pace import AIR_BYTES, AIR_BYTES_MAX, AIR_BYTES_MIN
from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import (
    RadioLost,
    ReceivedPacket,
    ReceiveQueue,
    TransmitResult,
)
from fieldagent.agent.channels.recognition import Recognition
from fieldagent.agent.channels.serial_port import SerialPort
from fieldagent.extensions.radio.contract import Radio, RadioPlace
from fieldagent.system.finding import Finding
from fieldagent.system.rate import EventRate
from fieldagent.wire import node

log = logging.getLogger(__name__)

HELLO_TIMEOUT_S = 5.0
"""Longest time in seconds for a node's answer. A microcontroller that has just been switched on
needs some time."""
SILENCE_S = 60.0
"""Seconds of silence after which the node is queried."""
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


class NodeModem:
    """Radio node that implements `channels.radio_modem.RadioModem`."""

    def __init__(self, port: SerialPort, link: ChannelLink, packet_bytes: int = AIR_BYTES) -> None:
        self._port = port
        self._packet_bytes = packet_bytes
        self._link = link
        self._node = node.NodeLink(node.NodeHello(boot=getrandbits(32)), silence_s=SILENCE_S)
        self._writing = trio.Lock()
        self._patience = trio.CancelScope()
        self._news = trio.Event()
        """Event that is set when the node has sent something. A new event then replaces it."""
        self._ear = ReceiveQueue()
        self._given_up = EventRate(trio.current_time)
        # Start at a random number, because a node may still hold Results for an earlier host.
        self._number = getrandbits(31)
        self._current_send: node.Send | None = None
        self._result: node.Result | None = None

    async def transmit(self, packet: bytes, *, urgent: bool) -> TransmitResult:
        self._number = (self._number + 1) % 2**32
        self._result, self._current_send = None, node.Send(self._number, packet, urgent)
        try:
            while self._node.free < 1:
                await self._news.wait()
            if not self._node.is_waiting_for(self._current_send):
                self._node.send(self._current_send, trio.current_time())
                await self._flush()
            result = await self._wait_for_result()
        finally:
            self._current_send = None
        if not result.transmitted and (count := self._given_up.count_event()):
            log.warning("the node gave up %d packets; the last: %s", count, result.reason)
        return TransmitResult.TRANSMITTED if result.transmitted else TransmitResult.DROPPED

    async def _wait_for_result(self) -> node.Result:
        """Wait until the node has reported the result of the current packet, and return the
        result.
        """
        while self._result is None:
            await self._news.wait()
        return self._result

    async def receive(self) -> ReceivedPacket:
        return await self._ear.receive()

    async def greet_node(self) -> None:
        """Send a hello, and wait until the node answers. Raises RadioLost after `HELLO_TIMEOUT_S`
        seconds.
        """
        self._node.open(trio.current_time())
        await self._flush()
        with trio.move_on_after(HELLO_TIMEOUT_S):
            while self._node.peer is None:
                await self._news.wait()
            return
        raise RadioLost("no node answers: is this the node's port, and does the node have power?")

    async def listen(self) -> NoReturn:
        """Read from the port and handle the node's messages, forever. Raises PortLost, and
        RadioLost if the node's packets are too small.
        """
        while True:
            self._node.receive_data(await self._port.read(), trio.current_time())
            while (event := self._node.next_event()) is not None:
                self._sort(event)
            await self._flush()
            self._news.set()
            self._news = trio.Event()

    async def run_timers(self) -> NoReturn:
        """Repeat messages and query the node when this is due, forever. Raises RadioLost when the
        node no longer answers.
        """
        while True:
            with trio.CancelScope(deadline=self._node.deadline) as self._patience:
                await trio.sleep_forever()
            self._node.tick(trio.current_time())
            await self._flush()
            if self._node.next_event() is not None:
                raise RadioLost("the node does not answer any more")

    async def _flush(self) -> None:
        async with self._writing:
            self._patience.deadline = self._node.deadline
            if data := self._node.data_to_send():
                await self._port.write(data)

    def _sort(self, event: node.NodeEvent) -> None:
        match event:
            case node.NodeOpened():
                self._open_node(event)
            case node.PacketHeard():
                self._ear.add_packet(ReceivedPacket(event.packet, event.rssi, event.snr))
            case node.Result() if self._current_send and event.number == self._current_send.number:
                self._result = event
            case node.NodeStatus():
                self._show(event)
            case node.Log():
                log.log(_LEVELS[event.level], "the node reports: %s", event.text)
            case node.Damaged():
                log.info("on the node's line: %s", event.reason)

    def _open_node(self, opening: node.NodeOpened) -> None:
        hello = opening.hello
        if hello.packet_bytes < AIR_BYTES_MIN:
            text = f"the node accepts packets of {hello.packet_bytes} bytes"
            raise RadioLost(f"{text}, {AIR_BYTES_MIN} are needed: give it other settings")
        if hello.packet_bytes < self._packet_bytes:
            text = (
                f"the node accepts packets of {hello.packet_bytes} bytes, not {self._packet_bytes}"
            )
            fix = f"set radio-packet-bytes={min(hello.packet_bytes, AIR_BYTES_MAX)}"
            raise RadioLost(f"{text}: {fix} on each kit of the group, and restart")
        if opening.is_new_session:
            log.info("node %s answers, firmware %s", hello.node, hello.firmware or "unknown")
            self._link.facts |= {"node": hello.node, "firmware": hello.firmware}
        current_send = self._current_send
        if (
            opening.is_new_session
            and current_send
            and self._result is None
            and not self._node.is_waiting_for(current_send)
        ):
            # The node restarted after it had taken the packet, so the packet is lost and must be
            # sent again.
            self._node.send(current_send, trio.current_time())

    def _show(self, status: node.NodeStatus) -> None:
        self._link.record_signal(status.signal)
        if status.battery is not None:
            self._link.facts["battery"] = status.battery
        if status.millivolts is not None:
            self._link.facts["millivolts"] = status.millivolts
        self._link.facts["nodes"] = len(status.neighbours)


@asynccontextmanager
async def open_node(place: RadioPlace, link: ChannelLink) -> AsyncIterator[NodeModem]:
    """Open a node, and wait for its hello. Raises RadioLost and PortLost, in exception groups."""
    async with (
        serial_port.open_serial(place.port, place.baud, link.recorder) as port,
        trio.open_nursery() as nursery,
    ):
        air = NodeModem(port, link, place.packet_bytes)
        nursery.start_soon(air.listen)
        nursery.start_soon(air.run_timers)
        await air.greet_node()
        yield air
        nursery.cancel_scope.cancel()


def check_node(place: RadioPlace) -> Finding:
    """Check whether the serial port exists and may be opened. Return the result as a Finding."""
    from fieldagent.agent.channels.serial_check import check_serial_port

    if "://" in place.port:
        text = f"{place.port}: a node is on a serial port; a KISS modem may be on TCP"
        return Finding(False, text)
    return check_serial_port(Path(place.port))


def _make_recognition() -> Recognition:
    from fieldagent.extensions.radio.radios.node_recognition import RECOGNITION

    return RECOGNITION


RADIO = Radio(
    "node",
    "a microcontroller with a radio, on a serial port: docs/reference/node-link.md",
    open_node,
    check_node,
    facts={
        "node": "name of the node",
        "firmware": "firmware of the node",
        "battery": "charge of the node's battery in per cent",
        "millivolts": "voltage of the node's battery",
        "nodes": "number of other nodes that the node hears",
    },
    recognition=_make_recognition,
)
