"""A LoRa board with MeshCore's KISS modem firmware, as its host and other radios see it. No I/O.
Commands cause failures that happen in the field.
"""

from __future__ import annotations

import struct
from random import Random

from fieldagent.extensions.lab.simulator.air import SharedAir
from fieldagent.extensions.lab.simulator.lora import RSSI, SNR, LoraBoard
from fieldagent.wire import kiss
from fieldagent.wire import meshcore_kiss as wire
from fieldagent.wire.lora import LoraSettings, compute_air_time
from fieldagent.wire.meshcore_kiss import MeshcoreCommand, MeshcoreReport

INITIAL_SETTINGS = LoraSettings(910_525_000, 62_500, 7, 5)
"""Radio settings of a new board."""
BEGINS_AT = 20
"""Transmit power of a new board in dBm."""
QUEUE_MAX = 1
"""Largest number of packets that wait for the channel. The board refuses further packets."""


class SimulatedMeshcore(LoraBoard):
    """A simulated board. Call `receive_data`, `receive_packet` and `tick` for each event, and then
    read `data_to_send` and `deadline`.
    """

    def __init__(self, number: int, air: SharedAir, random: Random) -> None:
        super().__init__(number, air, random, QUEUE_MAX)
        self.millivolts = 4_012
        """Battery voltage in millivolts."""
        self.reboot()

    def reboot(self) -> None:
        """Clear all state, including the settings and the waiting packets."""
        self.lora, self.power = INITIAL_SETTINGS, BEGINS_AT
        self.air.radios[self.number] = self.lora
        self._deframer = kiss.KissDeframer()
        self._output = bytearray()
        self._transmitter.reboot()

    def start(self, now: float) -> None:
        """Send nothing, because the host must send a request first."""

    def receive_data(self, data: bytes, now: float) -> None:
        for kind, content in self._deframer.receive_data(data):
            if kind == kiss.DATA:
                self._process_packet(content, now)
            elif kind == kiss.SET_HARDWARE and content:
                self._obey(content[0], content[1:])

    def receive_packet(self, packet: bytes, now: float) -> None:
        # A board that transmits hears nothing.
        if not self._transmitter.is_transmitting:
            self._output += kiss.encode(packet)
            self._send_to_host(MeshcoreReport.SIGNAL, struct.pack("<bb", SNR * 4, RSSI))

    def tick(self, now: float) -> None:
        for sent in self._transmitter.tick(now):
            self._send_to_host(MeshcoreReport.TX_DONE, bytes([sent]))

    def _process_packet(self, packet: bytes, now: float) -> None:
        fits = 0 < len(packet) <= wire.PACKET_BYTES
        if fits and not self._transmitter.queue_packet([packet], now):
            self._send_to_host(MeshcoreReport.ERROR, bytes([wire.ERROR_BUSY]))

    def _send_to_host(self, code: int, content: bytes = b"") -> None:
        self._output += kiss.encode(bytes([code]) + content, kiss.SET_HARDWARE)

    def _obey(self, command: int, content: bytes) -> None:
        if command == MeshcoreCommand.SET_RADIO:
            settings = wire.decode_settings(content)
            fits = (
                settings is not None and 5 <= settings.spreading <= 12 and 5 <= settings.coding <= 8
            )
            if settings is None or not fits:
                self._send_to_host(MeshcoreReport.ERROR, bytes([1 if settings is None else 2]))
                return
            self.lora = self.air.radios[self.number] = settings
            self._send_to_host(MeshcoreReport.OK)
        elif command == MeshcoreCommand.SET_POWER:
            self.power = content[0] if content else self.power
            self._send_to_host(MeshcoreReport.OK)
        elif command == MeshcoreCommand.REBOOT:
            self.reboot()
        elif (answer := self._answer_command(command, content)) is not None:
            self._send_to_host(command | wire.ANSWER_FLAG, answer)
        else:
            self._send_to_host(MeshcoreReport.ERROR, b"\5")

    def _answer_command(self, command: int, content: bytes) -> bytes | None:
        answers = {
            MeshcoreCommand.GET_RADIO: wire.encode_settings(self.lora),
            MeshcoreCommand.GET_POWER: bytes([self.power]),
            MeshcoreCommand.AIR_TIME: struct.pack("<I", self._convert_to_milliseconds(content)),
            MeshcoreCommand.VERSION: b"\1",
            MeshcoreCommand.BATTERY: struct.pack("<H", self.millivolts),
            MeshcoreCommand.NAME: b"Simulated",
            MeshcoreCommand.PING: b"",
            MeshcoreCommand.SIGNAL_REPORT: content,
        }
        return answers.get(MeshcoreCommand(command)) if command in set(MeshcoreCommand) else None

    def _convert_to_milliseconds(self, content: bytes) -> int:
        return round(1000 * compute_air_time(self.lora, content[0])) if content else 0
