"""MeshCore's KISS modem: what is said to a LoRa radio with that firmware, and what it says.

Data frames are raw LoRa packets. All else is KISS "SetHardware": a sub-command and its content,
little-endian, answered by the sub-command with its highest bit, by OK or by an error.
Source: MeshCore, docs/kiss_modem_protocol.md.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire import kiss
from fieldagent.wire.lora import LoraSettings

PACKET_BYTES = 255
"""Most bytes of a packet; longer ones the modem discards without a word."""
ANSWER = 0x80
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
    """Of the board."""
    PING = 0x17
    REBOOT = 0x18
    SIGNAL_REPORT = 0x19


class MeshcoreSaid(IntEnum):
    """What a modem says beside its answers."""

    OK = 0xF0
    ERROR = 0xF1
    TX_DONE = 0xF8
    """Content 1: sent, 0: not."""
    SIGNAL = 0xF9
    """Of the packet before it: its ratio to noise in quarters of a dB, its strength in dBm."""


BUSY = 7
ERRORS = {
    1: "the length is wrong",
    2: "a value is out of its range",
    3: "it is not ready for that",
    5: "it does not know that",
    BUSY: "it is busy, or its queue is full",
    8: "its radio does not do that",
}
"""By the code of an error, in words that follow a radio."""


class MeshcoreWord(NamedTuple):
    """One thing that a modem says: the code of a `MeshcoreSaid`, or of a command's answer."""

    code: int
    content: bytes


class PacketSignal(NamedTuple):
    snr: int
    """dB."""
    rssi: int
    """dBm."""


def ask(command: MeshcoreCommand, content: bytes = b"") -> bytes:
    """Return the frame that says a command."""
    return kiss.encode(bytes([command]) + content, kiss.SET_HARDWARE)


def read_word(content: bytes) -> MeshcoreWord | None:
    """Read what a SetHardware frame from the modem holds; None where that is nothing."""
    return MeshcoreWord(content[0], content[1:]) if content else None


def answers(word: MeshcoreWord, command: MeshcoreCommand) -> bool:
    """Return whether a modem's word ends what was asked by `command`."""
    if word.code in (MeshcoreSaid.OK, MeshcoreSaid.ERROR):
        return True
    return word.code == command | ANSWER


def write_settings(settings: LoraSettings) -> bytes:
    """Return the content of SET_RADIO, as `read_settings` reads it."""
    return _RADIO.pack(*settings)


def read_settings(content: bytes) -> LoraSettings | None:
    """Read LoRa settings; None where it is something else."""
    return LoraSettings(*_RADIO.unpack(content)) if len(content) == _RADIO.size else None


def read_signal(content: bytes) -> PacketSignal | None:
    """Read how the last packet was heard; None where it is something else."""
    if len(content) != 2:
        return None
    quarters, rssi = struct.unpack("<bb", content)
    return PacketSignal(round(quarters / 4), rssi)


def read_number(content: bytes) -> int | None:
    """Read a number of two or four bytes; None where it is something else."""
    form = {_SHORT.size: _SHORT, _LONG.size: _LONG}.get(len(content))
    return None if form is None else int(form.unpack(content)[0])
