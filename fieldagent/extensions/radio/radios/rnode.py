"""A LoRa board with RNode firmware on a serial line: the I/O around `wire.rnode`.

The firmware enforces its own air-time limit. The agent sets this limit to twice our share, because
an SOS may use twice the share. The firmware's limit also holds if the agent restarts and has
forgotten its transmissions.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import NoReturn

import trio

from fieldagent.agent.channels.air_time import URGENT_SHARE
from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import (
    RadioLost,
    ReceivedPacket,
    ReceiveQueue,
    TransmitResult,
)
from fieldagent.agent.channels.recognition import Recognition
from fieldagent.agent.channels.serial_port import PortLost, SerialPort, open_serial
from fieldagent.extensions.radio.contract import Radio, RadioPlace
from fieldagent.extensions.radio.radios import lora
from fieldagent.system import waits
from fieldagent.wire import kiss
from fieldagent.wire import rnode as wire
from fieldagent.wire.lora import compute_air_time
from fieldagent.wire.rnode import RnodeCommand, RnodeError, RnodeMessage

log = logging.getLogger(__name__)

NAME = "rnode"
ANSWER_TIMEOUT_S = 2.0
"""Longest time in seconds for a radio's answer."""
GREETINGS_MAX = 3
"""Number of greetings. A radio that starts when its port is opened, like an ESP32 by DTR, misses
the first greeting."""
READY_AFTER, READY_TIMES = 10.0, 3.0
"""After a packet, the radio is ready again within the first number of seconds, plus the packet's
air-time multiplied by the second number."""
UNREADY_AFTER, UNREADY_TIMES = 0.5, 1.5
"""The same two numbers for a radio that never reports that it is ready. After this time, the next
packet is sent."""
CHECK_INTERVAL_S = 30.0
"""Seconds between two checks of an idle radio."""
CLOSE_MAX_S = 1.0
ANSWERS = {*RnodeCommand} - {
    RnodeCommand.DATA,
    RnodeCommand.RSSI,
    RnodeCommand.SNR,
    RnodeCommand.BATTERY,
}
"""Commands whose frames are passed to the task that has sent a query or a packet."""


class RnodeModem:
    """RNode radio that implements `channels.radio_modem.RadioModem`."""

    def __init__(self, port: SerialPort, place: RadioPlace, link: ChannelLink) -> None:
        self._port = port
        self._link = link
        self._wanted = lora.make_settings(NAME, place.own_settings)
        self._power: int = place.own_settings[f"{NAME}-power"]
        self._deframer = kiss.KissDeframer()
        self._ear = ReceiveQueue()
        self._reports = lora.BoardReports[RnodeMessage]()
        self._turn = lora.BoardTurn(
            place.own_settings[f"{NAME}-share"], link, self._wait_for_outcome
        )
        self._says_ready = True
        """True if the radio reports after a packet that it is ready again. False once such a report
        was missing, because not every firmware has flow control."""
        self._restarted = trio.Event()
        """Event that is set when the radio reports a restart. A new event then replaces it."""
        self._has_forgotten = False
        """True if the radio has reported a restart. It may be on again already, but with settings
        from its own memory."""
        self._rssi: int | None = None
        self._snr: int | None = None
        link.facts["lora"] = self._wanted.format_settings()

    async def transmit(self, packet: bytes, *, urgent: bool) -> TransmitResult:
        async with self._turn.lock:
            await self._turn.wait_for_report()
            await self._restore_lost_settings()
            seconds = compute_air_time(self._wanted, len(packet) + wire.HEADER_BYTES)
            write = partial(self._port.write, wire.make_command_frame(RnodeCommand.DATA, packet))
            patience = READY_TIMES * seconds + READY_AFTER
            if not self._says_ready:
                patience = UNREADY_TIMES * seconds + UNREADY_AFTER
            result = await self._turn.send_packet(write, seconds, patience, urgent=urgent)
            if result is TransmitResult.UNKNOWN and self._says_ready:
                # The packet may have left. Send a greeting, which raises RadioLost if the radio has
                # hung.
                await self._greet_radio()
                self._says_ready = False
        return result

    async def receive(self) -> ReceivedPacket:
        return await self._ear.receive()

    async def _wait_for_outcome(self, deadline: float) -> TransmitResult | None:
        while (answer := await self._reports.wait_for_next(deadline)) is not None:
            if answer.command == RnodeCommand.READY and answer.content != wire.OFF:
                self._says_ready = True
                return TransmitResult.TRANSMITTED
            if answer.command == RnodeCommand.RESET:
                break
            if answer.command == RnodeCommand.ERROR:
                _raise_if_broken(answer)
                if answer.content[:1] == bytes([RnodeError.TRANSMIT_FAILED]):
                    return TransmitResult.DROPPED
                if answer.content and answer.content[0] in wire.QUEUE_FULL_ERRORS:
                    return None
        return TransmitResult.UNKNOWN

    async def open(self) -> None:
        """Greet the radio, check its firmware and set it up. Raises RadioLost."""
        async with self._turn.lock:
            await self._greet_radio()
            version = await self._ask(RnodeCommand.VERSION, wire.OFF)
            firmware = ".".join(map(str, version))
            if tuple(version) < wire.OLDEST_FIRMWARE:
                raise RadioLost(
                    f"the radio's firmware is RNode {firmware}, but 1.52 or later is needed:"
                    " update it with `rnodeconf --update` and its port"
                )
            self._link.facts["firmware"] = firmware
            await self._set_up()

    async def close(self) -> None:
        """Switch the radio off, because its received packets are no longer read."""
        try:
            with trio.CancelScope(shield=True), waits.move_on_after(CLOSE_MAX_S):
                await self._port.write(wire.make_command_frame(RnodeCommand.STATE, wire.OFF))
                await self._port.write(
                    wire.make_command_frame(RnodeCommand.LEAVE, wire.LEAVE_COMMAND)
                )
        except PortLost:
            log.debug("the radio disappeared while it was closed")

    async def maintain_settings(self) -> NoReturn:
        """Check the radio regularly and after a restart. Raises RadioLost."""
        while True:
            with waits.move_on_after(CHECK_INTERVAL_S):
                await self._restarted.wait()
            self._restarted = trio.Event()
            async with self._turn.lock:
                await self._restore_lost_settings()

    async def _restore_lost_settings(self) -> None:
        """Set up the radio again if it has restarted. After a restart, the radio is off, and
        usually reports the restart.
        """
        is_on = await self._ask(RnodeCommand.STATE, wire.STATE_ASK) == wire.STATE_ON
        if self._has_forgotten or not is_on:
            log.warning("the radio has restarted and lost its settings: set again")
            await self._set_up()

    async def _set_up(self) -> None:
        self._has_forgotten = False
        await self._ask(RnodeCommand.STATE, wire.OFF)
        for settings_command in wire.make_settings_commands(self._wanted, self._power):
            command = RnodeCommand(settings_command.command)
            answer = await self._ask(command, settings_command.content)
            if not wire.is_same_value(settings_command, answer):
                wanted, reply = (
                    wire.describe_setting(command, each)
                    for each in (settings_command.content, answer)
                )
                raise RadioLost(
                    f"the radio was set to {wanted}, but reports {reply}; see {NAME}-… in the"
                    " settings"
                )
        share_limit = wire.encode_air_share(self._link.air_time.limit.percent * URGENT_SHARE)
        await self._port.write(wire.make_command_frame(RnodeCommand.SHARE_OF_HOUR, share_limit))
        if await self._ask(RnodeCommand.STATE, wire.STATE_ON) != wire.STATE_ON:
            raise RadioLost("the radio stays off")

    async def _greet_radio(self) -> None:
        for _ in range(GREETINGS_MAX):
            if await self._wait_for_answer(RnodeCommand.DETECT, wire.DETECT) == wire.DETECTED:
                return
        raise RadioLost("the radio does not answer: does it run RNode firmware?")

    async def _ask(self, command: RnodeCommand, content: bytes) -> bytes:
        """Return the answer to a command. Raises RadioLost if there is none."""
        answer = await self._wait_for_answer(command, content)
        if answer is None:
            await self._greet_radio()
            answer = await self._wait_for_answer(command, content)
        if answer is None:
            raise RadioLost(f"the radio is connected, but does not answer {command.name}")
        return answer

    async def _wait_for_answer(self, command: RnodeCommand, content: bytes) -> bytes | None:
        await self._port.write(wire.make_command_frame(command, content))
        until = trio.current_time() + ANSWER_TIMEOUT_S
        while (answer := await self._reports.wait_for_next(until)) is not None:
            if answer.command == command:
                return answer.content
            if answer.command == RnodeCommand.ERROR:
                _raise_if_broken(answer)
        return None

    async def listen(self) -> NoReturn:
        """Handle the board's frames until the board is lost. Raises RadioLost."""
        while True:
            for command, content in self._deframer.receive_data(await self._port.read()):
                self._process_message(RnodeMessage(command, content))
            self._link.facts["damagedFrames"] = self._deframer.damaged

    def _process_message(self, report: RnodeMessage) -> None:
        if report.command == RnodeCommand.DATA:
            self._ear.add_packet(ReceivedPacket(report.content, self._rssi, self._snr))
            self._rssi = self._snr = None
        elif report.command == RnodeCommand.RSSI:
            self._rssi = wire.decode_rssi(report.content)
        elif report.command == RnodeCommand.SNR:
            self._snr = wire.decode_snr(report.content)
        elif report.command == RnodeCommand.BATTERY:
            if (battery := wire.decode_battery(report.content)) is not None:
                self._link.facts["battery"] = battery.percent
        elif report.command in ANSWERS:
            if report.command == RnodeCommand.RESET:
                self._has_forgotten = True
                self._restarted.set()
            self._reports.queue_report(report)


def _raise_if_broken(error: RnodeMessage) -> None:
    """Raise RadioLost if `error` means that the radio cannot transmit."""
    for code, cause in wire.BROKEN_ERRORS.items():
        if error.content[:1] == bytes([code]):
            raise RadioLost(f"the radio transmits nothing: {cause}")


@asynccontextmanager
async def open_rnode(place: RadioPlace, link: ChannelLink) -> AsyncIterator[RnodeModem]:
    """Open an RNode radio, set it up, and check it regularly. At the end, switch it off. Raises
    RadioLost and PortLost, in exception groups.
    """
    async with open_serial(place.port, place.baud, link.recorder) as port:
        modem = RnodeModem(port, place, link)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(modem.listen)
            try:
                await modem.open()
                nursery.start_soon(modem.maintain_settings)
                yield modem
            finally:
                await modem.close()
            nursery.cancel_scope.cancel()


def _make_recognition() -> Recognition:
    from fieldagent.extensions.radio.radios.rnode_recognition import RECOGNITION

    return RECOGNITION


RADIO = Radio(
    NAME,
    "LoRa boards with RNode firmware (Heltec, LilyGO, RAK, T-Beam): docs/how-to/radio.md",
    open_rnode,
    keys=lora.make_keys(NAME),
    needs=lora.list_needs(NAME),
    is_counting_air_time=True,
    facts={
        "lora": "the radio's settings",
        "firmware": "firmware version of the radio",
        "battery": "charge of the radio's own battery in per cent",
        "damagedFrames": "number of frames that could not be read",
    },
    recognition=_make_recognition,
)
