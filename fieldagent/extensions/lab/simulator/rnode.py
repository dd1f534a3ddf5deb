"""A LoRa board with RNode firmware, as its host and other radios see it. No I/O. Commands cause
failures that happen in the field.
"""

from __future__ import annotations

from random import Random

from fieldagent.extensions.lab.simulator.air import SharedAir
from fieldagent.extensions.lab.simulator.lora import RSSI, SNR, LoraBoard
from fieldagent.wire import kiss
from fieldagent.wire import rnode as wire
from fieldagent.wire.lora import LoraSettings, compute_air_time
from fieldagent.wire.rnode import RnodeCommand, RnodeError

VERSION = bytes([1, 85])
QUEUE_MAX = 8
"""Largest number of packets that wait for the channel. The board refuses further packets."""
PACKET_MAX = 508
SPLIT = 0x01
"""Flag in the first byte of a segment. It is set if the packet has two segments. The upper four
bits of the byte contain the packet's number."""
PLATFORM, MCU = b"\x80", b"\x81"
ASKED_PLATFORM, ASKED_MCU = 0x48, 0x49
HOUR = 3600.0
MEMORY = 200
"""Size of the board's EEPROM in bytes."""


class SimulatedRnode(LoraBoard):
    """A simulated board. Call `receive_data`, `receive_packet` and `tick` for each event, and then
    read `data_to_send` and `deadline`.
    """

    def __init__(self, number: int, air: SharedAir, random: Random) -> None:
        super().__init__(number, air, random, QUEUE_MAX)
        self.provisioned = True
        self.reboot()

    def reboot(self) -> None:
        """Switch off the radio and clear all state."""
        self.air.radios.pop(self.number, None)
        self._transmitter.reboot()
        self._deframer = kiss.KissDeframer()
        self._output = bytearray()
        self._set: dict[int, bytes] = {}
        self._half: tuple[int, bytes] | None = None
        self._numbered = 0
        self._sent: list[tuple[float, float]] = []
        """Start time and airtime of each packet, in seconds."""

    def start(self, now: float) -> None:
        self._send_to_host(RnodeCommand.RESET, b"\xf8")

    def receive_data(self, data: bytes, now: float) -> None:
        for command, content in self._deframer.receive_data(data):
            if command == RnodeCommand.DATA:
                self._queue_packet(content, now)
            else:
                self._obey(command, content)

    def receive_packet(self, packet: bytes, now: float) -> None:
        """Receive a packet from the air. The first segment of a split packet waits for the second
        segment.
        """
        # A board that transmits hears nothing.
        if self._transmitter.is_transmitting or not packet:
            return
        head, content = packet[0], packet[1:]
        if head & SPLIT and self._half is None:
            self._half = head, content
            return
        if self._half is not None:
            number, first = self._half
            self._half = None
            content = first + content if number == head else content
        self._send_to_host(RnodeCommand.RSSI, bytes([RSSI + 157]))
        self._send_to_host(RnodeCommand.SNR, bytes([SNR * 4]))
        self._send_to_host(RnodeCommand.DATA, content)

    def tick(self, now: float) -> None:
        for sent in self._transmitter.tick(now):
            if sent:
                self._send_to_host(RnodeCommand.READY, b"\1")
            else:
                self._fail(RnodeError.TRANSMIT_FAILED)

    def _queue_packet(self, packet: bytes, now: float) -> None:
        if self.number not in self.air.radios:
            self._fail(RnodeError.TRANSMIT_FAILED)
            return
        if not 0 < len(packet) <= PACKET_MAX:
            return
        self._numbered = (self._numbered + 1) % 16
        cut = wire.PACKET_BYTES
        head = self._numbered << 4 | (SPLIT if len(packet) > cut else 0)
        segments = [bytes([head]) + each for each in (packet[:cut], packet[cut:]) if each]
        lora = self.air.radios[self.number]
        air_time = sum(compute_air_time(lora, len(segment)) for segment in segments)
        if not self._is_allowed(air_time, now) or not self._transmitter.queue_packet(segments, now):
            self._fail(RnodeError.QUEUE_FULL)
        else:
            self._sent.append((now, air_time))

    def _is_allowed(self, seconds: float, now: float) -> bool:
        share = int.from_bytes(self._set.get(RnodeCommand.SHARE_OF_HOUR, b""), "big")
        self._sent = [each for each in self._sent if each[0] > now - HOUR]
        spent = sum(took for _, took in self._sent)
        return not share or spent + seconds <= share / wire.HUNDRED_PER_CENT * HOUR

    def _obey(self, command: int, content: bytes) -> None:
        # The board does not answer unknown commands. A driver therefore needs a timeout for them.
        if command == RnodeCommand.DETECT and content == wire.DETECT:
            self._send_to_host(command, wire.DETECTED)
        elif command == RnodeCommand.STATE:
            if content != wire.STATE_ASK:
                self._switch_radio(on=content == wire.STATE_ON)
            self._send_to_host(
                command, wire.STATE_ON if self.number in self.air.radios else wire.OFF
            )
        elif command in (ASKED_PLATFORM, ASKED_MCU):
            self._send_to_host(command, PLATFORM if command == ASKED_PLATFORM else MCU)
        elif command == RnodeCommand.VERSION:
            self._send_to_host(command, VERSION)
        elif command == RnodeCommand.LEAVE:
            self._switch_radio(on=False)
        elif command == RnodeCommand.READ_MEMORY:
            memory = bytearray(b"\xff" * MEMORY)
            memory[wire.INFO_LOCK] = wire.SET if self.provisioned else 0xFF
            self._send_to_host(command, bytes(memory))
        elif (command, content) in wire.QUESTIONS:
            self._send_to_host(command, self._set.get(command, bytes(SETTINGS[command])))
        elif command in SETTINGS and len(content) == SETTINGS[command]:
            self._set[command] = content
            self._send_to_host(command, content)
            if self.number in self.air.radios:
                self._switch_radio(on=True)

    def _switch_radio(self, *, on: bool) -> None:
        self.air.radios.pop(self.number, None)
        if not on:
            return
        if not self.provisioned:
            self._fail(RnodeError.NOT_PROVISIONED)
        elif self._set.keys() >= REQUIRED_SETTINGS:
            numbers = (int.from_bytes(self._set[each], "big") for each in sorted(REQUIRED_SETTINGS))
            self.air.radios[self.number] = LoraSettings(*numbers)
        else:
            self._fail(RnodeError.RADIO_INIT)

    def _fail(self, error: RnodeError) -> None:
        self._send_to_host(RnodeCommand.ERROR, bytes([error]))

    def _send_to_host(self, command: int, content: bytes) -> None:
        self._output += wire.make_command_frame(command, content)


REQUIRED_SETTINGS = {
    RnodeCommand.FREQUENCY,
    RnodeCommand.BANDWIDTH,
    RnodeCommand.SPREADING,
    RnodeCommand.CODING,
}
"""Settings that the board needs before the radio can be switched on. In the order of their numbers,
they are the fields of LoraSettings."""
SETTINGS: dict[int, int] = {
    RnodeCommand.FREQUENCY: 4,
    RnodeCommand.BANDWIDTH: 4,
    RnodeCommand.POWER: 1,
    RnodeCommand.SPREADING: 1,
    RnodeCommand.CODING: 1,
    RnodeCommand.SHARE_OF_HOUR: 2,
}
"""Number of bytes of each setting."""
