"""MeshCore's KISS modem: the protocol of a LoRa radio with MeshCore's KISS firmware.

Data frames are raw LoRa packets. All other frames are KISS "SetHardware": a sub-command and its
content, little-endian. The modem answers with the sub-command with its highest bit set, with OK, or
with an error. Source: MeshCore, docs/kiss_modem_protocol.md.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire import kiss
from fieldagent.wire.lora import LoraSettings

PACKET_BYTES = 255
"""Maximum bytes of a packet. The modem discards a longer packet without an answer."""
ANSWER_FLAG = 0x80
_RADIO = struct.Struct("<IIBB")
_SHORT, _LONG = struct.Struct("<H"), struct.Struct("<I")


class MeshcoreCommand(IntEnum):
    SET_RADIO = 0x09
    SET_POWER = 0x0A
    GET_RADIO = 0x0B
    GET_POWER = 0x0C
    AIR_TIME = 0x0F
    VERSION = 0x11
    BATTERY = 0x13
    NAME = 0x16
    """Name of the board."""
    PING = 0x17
    REBOOT = 0x18
    SIGNAL_REPORT = 0x19


class MeshcoreReport(IntEnum):
    """Messages of a modem other than answers."""

    OK = 0xF0
    ERROR = 0xF1
    TX_DONE = 0xF8
    """Result of a transmission. The content is 1 if the packet was sent, otherwise 0."""
    SIGNAL = 0xF9
    """Signal of the previous packet: signal-to-noise ratio in quarters of a dB, and strength in
    dBm."""


ERROR_BUSY = 7
ERRORS = {
    1: "the length is wrong",
    2: "a value is out of its range",
    3: "it is not ready for that",
    5: "it does not know that",
    ERROR_BUSY: "it is busy, or its queue is full",
    8: "its radio does not do that",
}
"""Texts of errors by code, as the end of a sentence about a radio."""


class MeshcoreMessage(NamedTuple):
    """A message of a modem: its code (a `MeshcoreReport`, or the code of an answer), and its
    content.
    """

    code: int
    content: bytes


class PacketSignal(NamedTuple):
    snr: int
    """Signal-to-noise ratio in dB."""
    rssi: int
    """Signal strength in dBm."""


def ask(command: MeshcoreCommand, content: bytes = b"") -> bytes:
    """Return the KISS frame with which the host sends `command`."""
    return kiss.encode(bytes([command]) + content, kiss.SET_HARDWARE)


def decode_message(content: bytes) -> MeshcoreMessage | None:
    """Parse the content of a SetHardware frame from the modem. Return None if it is empty."""
    return MeshcoreMessage(content[0], content[1:]) if content else None


def is_answer_to(message: MeshcoreMessage, command: MeshcoreCommand) -> bool:
    """Return True if a modem's message is the final answer to `command`."""
    if message.code in (MeshcoreReport.OK, MeshcoreReport.ERROR):
        return True
    return message.code == command | ANSWER_FLAG


def encode_settings(settings: LoraSettings) -> bytes:
    """Encode LoRa settings as the content of SET_RADIO, in the form for `decode_settings`."""
    return _RADIO.pack(*settings)


def decode_settings(content: bytes) -> LoraSettings | None:
    """Parse LoRa settings. Return None if the size is wrong."""
    return LoraSettings(*_RADIO.unpack(content)) if len(content) == _RADIO.size else None


def decode_signal(content: bytes) -> PacketSignal | None:
    """Parse the signal of the last packet. Return None if the size is wrong."""
    if len(content) != 2:
        return None
    quarters, rssi = struct.unpack("<bb", content)
    return PacketSignal(round(quarters / 4), rssi)


def decode_number(content: bytes) -> int | None:
    """Parse a number of two or four bytes. Return None if the size is wrong."""
    form = {_SHORT.size: _SHORT, _LONG.size: _LONG}.get(len(content))
    return None if form is None else int(form.unpack(content)[0])
