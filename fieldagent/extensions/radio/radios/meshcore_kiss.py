"""A LoRa board with MeshCore's KISS modem firmware on a serial line: the I/O around
`wire.meshcore_kiss`. A packet is transmitted without addresses, so no air-time is used for a
callsign.

If its power fails for a moment, the board may lose its settings without a report. So the settings
are checked regularly and before each packet, so that the agent never transmits at a frequency that
was not configured.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import NoReturn

import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import (
    RadioLost,
    ReceivedPacket,
    ReceiveQueue,
    TransmitResult,
)
from fieldagent.agent.channels.recognition import Recognition
from fieldagent.agent.channels.serial_port import SerialPort, open_serial
from fieldagent.extensions.radio.contract import Radio, RadioPlace
from fieldagent.extensions.radio.radios import lora
from fieldagent.system import waits
from fieldagent.wire import kiss
from fieldagent.wire import meshcore_kiss as wire
from fieldagent.wire.meshcore_kiss import MeshcoreCommand, MeshcoreMessage, MeshcoreReport

log = logging.getLogger(__name__)

NAME = "meshcore-kiss"
ANSWER_TIMEOUT_S = 2.0
"""Longest time in seconds for a modem's answer. A modem that has just been switched on may need a
second query."""
SIGNAL_TIMEOUT_S = 0.2
"""Seconds within which the signal report follows its packet."""
RESULT_AFTER_S, RESULT_AIR_TIMES = 10.0, 3.0
"""The result of a packet arrives within the first number of seconds, plus the packet's air-time
multiplied by the second number."""
CHECK_INTERVAL_S = 30.0
"""Seconds between two checks of an idle modem. After the modem has lost its settings, it receives
nothing until the next check."""
TX_DELAY = bytes([2])
"""Transmitter delay before the first byte, in units of 10 ms. The firmware's default of 500 ms is
for FM radios."""


class MeshcoreModem:
    """MeshCore board that implements `channels.radio_modem.RadioModem`."""

    def __init__(self, port: SerialPort, place: RadioPlace, link: ChannelLink) -> None:
        self._port = port
        self._link = link
        self._wanted = lora.make_settings(NAME, place.own_settings)
        self._power: int = place.own_settings[f"{NAME}-power"]
        self._deframer = kiss.KissDeframer()
        self._ear = ReceiveQueue()
        self._reports = lora.BoardReports[MeshcoreMessage]()
        self._turn = lora.BoardTurn(
            place.own_settings[f"{NAME}-share"], link, self._wait_for_outcome
        )
        self._nonsense = trio.Event()
        """Event that is set when the modem sends bytes that are not a frame, as the modem does when
        it starts. A new event then replaces it."""
        self._air_times: dict[int, float] = {}
        link.facts["lora"] = self._wanted.format_settings()

    async def transmit(self, packet: bytes, *, urgent: bool) -> TransmitResult:
        async with self._turn.lock:
            await self._turn.wait_for_report()
            await self._restore_lost_radio_settings()
            seconds = await self._compute_air_time(len(packet))
            write = partial(self._port.write, kiss.encode(packet))
            patience = RESULT_AIR_TIMES * seconds + RESULT_AFTER_S
            result = await self._turn.send_packet(write, seconds, patience, urgent=urgent)
            if result is TransmitResult.UNKNOWN:
                # The packet may have left. Send a ping, which raises RadioLost if the modem has
                # hung.
                await self._greet_modem()
        return result

    async def receive(self) -> ReceivedPacket:
        return await self._ear.receive()

    async def _wait_for_outcome(self, deadline: float) -> TransmitResult | None:
        while (answer := await self._reports.wait_for_next(deadline)) is not None:
            if answer.code == MeshcoreReport.TX_DONE:
                sent = answer.content == b"\1"
                return TransmitResult.TRANSMITTED if sent else TransmitResult.DROPPED
            if answer.code == MeshcoreReport.ERROR and answer.content[:1] == bytes(
                [wire.ERROR_BUSY]
            ):
                return None
        return TransmitResult.UNKNOWN

    async def _compute_air_time(self, size: int) -> float:
        """Return the seconds on air as the modem computes them from its own settings."""
        if size not in self._air_times:
            answer = await self._ask(MeshcoreCommand.AIR_TIME, bytes([size]))
            milliseconds = (
                wire.decode_number(answer.content) if answer.code != MeshcoreReport.ERROR else None
            )
            if milliseconds is None:
                raise RadioLost("the radio does not report the airtime of a packet")
            self._air_times[size] = milliseconds / 1000
        return self._air_times[size]

    async def _greet_modem(self) -> None:
        for _ in range(2):
            answer = await self._request_answer(MeshcoreCommand.PING)
            if answer is not None and answer.code == MeshcoreCommand.PING | wire.ANSWER_FLAG:
                return
        raise RadioLost("the radio does not answer: does it run MeshCore's KISS modem firmware?")

    async def open(self) -> None:
        """Ping the radio and set it up. Raises RadioLost."""
        async with self._turn.lock:
            await self._greet_modem()
            version = await self._ask(MeshcoreCommand.VERSION)
            if version.code != MeshcoreReport.ERROR:
                self._link.facts["firmware"] = ".".join(map(str, version.content))
            await self._set_up()

    async def maintain_settings(self) -> NoReturn:
        """Check the settings regularly, and whenever the radio may have restarted. Raises
        RadioLost.
        """
        while True:
            with waits.move_on_after(CHECK_INTERVAL_S):
                await self._nonsense.wait()
            self._nonsense = trio.Event()
            async with self._turn.lock:
                await self._restore_lost_radio_settings()
                volts = await self._ask(MeshcoreCommand.BATTERY)
                if volts.code != MeshcoreReport.ERROR and (
                    millivolts := wire.decode_number(volts.content)
                ):
                    self._link.facts["batteryMillivolts"] = millivolts

    async def _restore_lost_radio_settings(self) -> None:
        settings = wire.decode_settings((await self._ask(MeshcoreCommand.GET_RADIO)).content)
        if settings != self._wanted:
            had = "nothing" if settings is None else settings.format_settings()
            log.warning("the radio has lost its settings (it reports %s): set again", had)
            await self._set_up()

    async def _set_up(self) -> None:
        wanted = self._wanted
        await self._set(
            MeshcoreCommand.SET_RADIO, wire.encode_settings(wanted), wanted.format_settings()
        )
        settings = wire.decode_settings((await self._ask(MeshcoreCommand.GET_RADIO)).content)
        if settings != wanted:
            had = "nothing" if settings is None else settings.format_settings()
            raise RadioLost(f"the radio was set to {wanted.format_settings()}, but reports {had}")
        await self._set(MeshcoreCommand.SET_POWER, bytes([self._power]), f"{self._power} dBm")
        await self._port.write(kiss.encode(TX_DELAY, kiss.TX_DELAY))
        # Without this command, the modem does not report the signal. Earlier firmware always
        # reports the signal.
        await self._ask(MeshcoreCommand.SIGNAL_REPORT, b"\1")
        self._air_times.clear()

    async def _set(self, command: MeshcoreCommand, content: bytes, setting_text: str) -> None:
        answer = await self._ask(command, content)
        if answer.code == MeshcoreReport.ERROR:
            reason = wire.ERRORS.get(
                answer.content[0] if answer.content else 0, "it gives no reason"
            )
            raise RadioLost(
                f"the radio does not accept {setting_text}: {reason}; see {NAME}-… in the settings"
            )

    async def _ask(self, command: MeshcoreCommand, content: bytes = b"") -> MeshcoreMessage:
        """Return the answer to a command. Raises RadioLost if there is none."""
        answer = await self._request_answer(command, content)
        if answer is None:
            await self._greet_modem()
            answer = await self._request_answer(command, content)
        if answer is None:
            raise RadioLost(f"the radio answers a ping, but not {command.name}")
        return answer

    async def _request_answer(
        self, command: MeshcoreCommand, content: bytes = b""
    ) -> MeshcoreMessage | None:
        await self._port.write(wire.ask(command, content))
        until = trio.current_time() + ANSWER_TIMEOUT_S
        while (answer := await self._reports.wait_for_next(until)) is not None:
            if answer.code == MeshcoreReport.TX_DONE:
                self._turn.report_due_until = None
            elif wire.is_answer_to(answer, command):
                break
        return answer

    async def listen(self) -> NoReturn:
        """Read frames from the radio forever. A packet waits at most `SIGNAL_TIMEOUT_S` seconds for
        its signal report. Raises PortLost.
        """
        packet: bytes | None = None
        while True:
            data = b""
            with waits.move_on_after(inf if packet is None else SIGNAL_TIMEOUT_S):
                data = await self._port.read()
            if not data and packet is not None:
                self._process_frame(packet)
                packet = None
            for kind, content in self._deframer.receive_data(data):
                if kind == kiss.DATA:
                    if packet is not None:
                        self._process_frame(packet)
                    packet = content
                elif kind == kiss.SET_HARDWARE and (answer := wire.decode_message(content)):
                    if answer.code != MeshcoreReport.SIGNAL:
                        self._reports.queue_report(answer)
                    elif packet is not None:
                        self._process_frame(packet, wire.decode_signal(answer.content))
                        packet = None
            if self._deframer.damaged != self._link.facts.get("damagedFrames", 0):
                self._nonsense.set()
            self._link.facts["damagedFrames"] = self._deframer.damaged

    def _process_frame(self, packet: bytes, signal: wire.PacketSignal | None = None) -> None:
        rssi, snr = (None, None) if signal is None else (signal.rssi, signal.snr)
        self._ear.add_packet(ReceivedPacket(packet, rssi, snr))


@asynccontextmanager
async def open_meshcore(place: RadioPlace, link: ChannelLink) -> AsyncIterator[MeshcoreModem]:
    """Open a MeshCore radio, set it up, and check it regularly. Raises RadioLost and PortLost, in
    exception groups.
    """
    async with open_serial(place.port, place.baud, link.recorder) as port:
        modem = MeshcoreModem(port, place, link)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(modem.listen)
            await modem.open()
            nursery.start_soon(modem.maintain_settings)
            yield modem
            nursery.cancel_scope.cancel()


def _make_recognition() -> Recognition:
    from fieldagent.extensions.radio.radios.meshcore_kiss_recognition import RECOGNITION

    return RECOGNITION


RADIO = Radio(
    NAME,
    "LoRa boards with MeshCore's KISS modem firmware (Heltec, RAK, T-Beam): docs/how-to/radio.md",
    open_meshcore,
    keys=lora.make_keys(NAME),
    needs=lora.list_needs(NAME),
    is_counting_air_time=True,
    facts={
        "lora": "the radio's settings",
        "firmware": "firmware version of the radio",
        "batteryMillivolts": "voltage of the radio's own battery",
        "damagedFrames": "number of frames that could not be read",
    },
    recognition=_make_recognition,
)
