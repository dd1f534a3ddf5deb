"""RNode: what is said to a LoRa radio with that firmware, and what it says.

Frames are KISS's, whose first byte is a command of RNode's own: 6, with which KISS sets hardware,
turns the radio on and off here. Numbers are big-endian.
Source: the commands of RNode_Firmware 1.85, Framing.h.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire import kiss
from fieldagent.wire.lora import LoraSettings

PACKET_BYTES = 254
"""Most bytes of a packet that goes on the air in one piece; a longer one goes in two."""
HEADER_BYTES = 1
"""That the firmware puts before each piece."""
OFF, ON, ASK = b"\x00", b"\x01", b"\xff"
"""Of STATE."""
DETECT, DETECTED = b"\x73", b"\x46"
LEAVE = b"\xff"
WHOLE = 10_000
"""100 per cent in hundredths."""
FREQUENCY_OFF = 100
"""Hz by which a frequency that is read back may differ: the chips have steps."""
OLDEST = (1, 52)
"""The firmware whose commands these are."""


class RnodeCommand(IntEnum):
    DATA = 0x00
    FREQUENCY = 0x01
    BANDWIDTH = 0x02
    POWER = 0x03
    SPREADING = 0x04
    CODING = 0x05
    STATE = 0x06
    DETECT = 0x08
    LEAVE = 0x0A
    SHARE_OF_HOUR = 0x0C
    """Of the air, which the firmware does not exceed."""
    READY = 0x0F
    """The next packet may come."""
    RSSI = 0x23
    SNR = 0x24
    BATTERY = 0x27
    VERSION = 0x50
    READ_MEMORY = 0x51
    """All that its EEPROM holds."""
    RESET = 0x55
    """From the radio: it has started anew."""
    ERROR = 0x90


class RnodeError(IntEnum):
    RADIO_INIT = 1
    TRANSMIT_FAILED = 2
    NOT_PROVISIONED = 3
    QUEUE_FULL = 4
    MEMORY = 5
    MODEM_TIMEOUT = 6


QUESTIONS = (
    (RnodeCommand.FREQUENCY, bytes(4)),
    (RnodeCommand.BANDWIDTH, bytes(4)),
    (RnodeCommand.SPREADING, ASK),
    (RnodeCommand.CODING, ASK),
    (RnodeCommand.POWER, ASK),
)
"""What asks for a setting, and leaves it as it is."""
INFO_LOCK, OWN_SETTINGS, SET = 0x9B, 0xA7, 0x73
"""Where its EEPROM says that it is provisioned and that it has settings stored, and what stands
there then."""

FULL = {RnodeError.QUEUE_FULL, RnodeError.MEMORY}
"""The packet was not taken, and may be later."""
BROKEN = {
    RnodeError.RADIO_INIT: "its LoRa chip does not start: is it the firmware of this very board?",
    RnodeError.NOT_PROVISIONED: "it is not provisioned: run `rnodeconf --autoinstall` with it once",
    RnodeError.MODEM_TIMEOUT: "its LoRa chip does not answer",
}
"""What is wrong where it transmits nothing any more, in words that follow a radio."""


class RnodeWord(NamedTuple):
    """One thing that is said: the number of an `RnodeCommand`, or of one that we do not know."""

    command: int
    content: bytes


class RnodeBattery(NamedTuple):
    percent: int
    charging: bool


def say(command: int, content: bytes = b"") -> bytes:
    """Return the frame of a command."""
    return kiss.encode(content, command & 0x0F, command >> 4)


def settings_words(settings: LoraSettings, power: int) -> list[RnodeWord]:
    """Return what sets a radio that is off; it says each back as it then is."""
    return [
        RnodeWord(RnodeCommand.FREQUENCY, settings.frequency.to_bytes(4, "big")),
        RnodeWord(RnodeCommand.BANDWIDTH, settings.bandwidth.to_bytes(4, "big")),
        RnodeWord(RnodeCommand.POWER, bytes([power])),
        RnodeWord(RnodeCommand.SPREADING, bytes([settings.spreading])),
        RnodeWord(RnodeCommand.CODING, bytes([settings.coding])),
    ]


def agrees(asked: RnodeWord, answer: bytes) -> bool:
    """Return whether what a radio says back is what was set."""
    if asked.command == RnodeCommand.FREQUENCY:
        off = int.from_bytes(answer, "big") - int.from_bytes(asked.content, "big")
        return len(answer) == len(asked.content) and abs(off) <= FREQUENCY_OFF
    return answer == asked.content


def in_words(command: int, content: bytes) -> str:
    """Return a setting for people, as `869.525 MHz` and `SF8`."""
    number = int.from_bytes(content, "big")
    if command == RnodeCommand.FREQUENCY:
        return f"{number / 1e6:.6g} MHz"
    if command == RnodeCommand.BANDWIDTH:
        return f"{number / 1e3:g} kHz"
    if command == RnodeCommand.SPREADING:
        return f"SF{number}"
    if command == RnodeCommand.CODING:
        return f"4/{number}"
    return f"{number} dBm"


def is_provisioned(memory: bytes) -> bool | None:
    """Return whether the board is provisioned; None where it did not tell."""
    return memory[INFO_LOCK] == SET if len(memory) > INFO_LOCK else None


def starts_by_itself(memory: bytes) -> bool:
    """Return whether it has settings stored, with which its radio is on as soon as it has power."""
    return memory[OWN_SETTINGS : OWN_SETTINGS + 1] == bytes([SET])


def write_share(percent: float) -> bytes:
    """Write `percent` of an hour, as SHARE_OF_HOUR takes it."""
    return struct.pack(">H", min(WHOLE, round(percent * 100)))


def read_rssi(content: bytes) -> int | None:
    """Read the signal strength, in dBm; None where it is something else."""
    return content[0] - 157 if len(content) == 1 else None


def read_snr(content: bytes) -> int | None:
    """Read the ratio of signal to noise, in dB; None where it is something else."""
    return round(struct.unpack("b", content)[0] / 4) if len(content) == 1 else None


def read_battery(content: bytes) -> RnodeBattery | None:
    """Read the battery; None where it does not know, or has none."""
    if len(content) != 2 or not 1 <= content[0] <= 3 or content[1] > 100:
        return None
    return RnodeBattery(content[1], charging=content[0] == 2)
