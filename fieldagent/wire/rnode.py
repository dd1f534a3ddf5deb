"""RNode: the protocol of a LoRa radio with RNode firmware.

Frames are KISS frames whose first byte is a command of RNode. In KISS, command 6 sets hardware; in
RNode, it turns the radio on and off. Numbers are big-endian. Source: the commands of RNode_Firmware
1.85, Framing.h.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire import kiss
from fieldagent.wire.lora import LoraSettings

PACKET_BYTES = 254
"""Maximum bytes of a packet in one segment. A longer packet is sent in two segments."""
HEADER_BYTES = 1
"""Bytes that the firmware adds before each segment."""
OFF, STATE_ON, STATE_ASK = b"\x00", b"\x01", b"\xff"
"""Contents of the command STATE: off, on, and a query of the state."""
DETECT, DETECTED = b"\x73", b"\x46"
LEAVE_COMMAND = b"\xff"
HUNDRED_PER_CENT = 10_000
"""Value that means 100 per cent, because the unit is a hundredth of a per cent."""
FREQUENCY_TOLERANCE_HZ = 100
"""Tolerance in Hz of a frequency that is read back, because the chips tune in steps."""
OLDEST_FIRMWARE = (1, 52)
"""Oldest supported firmware version."""


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
    """Maximum share of an hour on the air, which the firmware enforces."""
    READY = 0x0F
    """The radio is ready for the next packet."""
    RSSI = 0x23
    SNR = 0x24
    BATTERY = 0x27
    VERSION = 0x50
    READ_MEMORY = 0x51
    """Complete contents of the board's EEPROM."""
    RESET = 0x55
    """Message from the radio that it has restarted."""
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
    (RnodeCommand.SPREADING, STATE_ASK),
    (RnodeCommand.CODING, STATE_ASK),
    (RnodeCommand.POWER, STATE_ASK),
)
"""Queries of settings, which do not change them."""
INFO_LOCK, OWN_SETTINGS, SET = 0x9B, 0xA7, 0x73
"""Addresses in the EEPROM which show that the board is provisioned, and that it has stored
settings; and the value that they then contain."""

QUEUE_FULL_ERRORS = {RnodeError.QUEUE_FULL, RnodeError.MEMORY}
"""Errors for a packet that was refused but can be accepted later."""
BROKEN_ERRORS = {
    RnodeError.RADIO_INIT: "its LoRa chip does not start: is the firmware for this board?",
    RnodeError.NOT_PROVISIONED: "it is not provisioned: run `rnodeconf --autoinstall` with it once",
    RnodeError.MODEM_TIMEOUT: "its LoRa chip does not answer",
}
"""Errors after which the radio no longer transmits. Each text is the end of a sentence about a
radio."""


class RnodeMessage(NamedTuple):
    """A message: the number of a command (an `RnodeCommand`, or an unknown number), and its
    content.
    """

    command: int
    content: bytes


class RnodeBattery(NamedTuple):
    percent: int
    charging: bool


def make_command_frame(command: int, content: bytes = b"") -> bytes:
    """Return the KISS frame that contains `command` and its content."""
    return kiss.encode(content, command & 0x0F, command >> 4)


def make_settings_commands(settings: LoraSettings, power: int) -> list[RnodeMessage]:
    """Return the commands that configure a radio with `settings` and with `power` in dBm. The radio
    must be off. It answers each command with the current value.
    """
    return [
        RnodeMessage(RnodeCommand.FREQUENCY, settings.frequency.to_bytes(4, "big")),
        RnodeMessage(RnodeCommand.BANDWIDTH, settings.bandwidth.to_bytes(4, "big")),
        RnodeMessage(RnodeCommand.POWER, bytes([power])),
        RnodeMessage(RnodeCommand.SPREADING, bytes([settings.spreading])),
        RnodeMessage(RnodeCommand.CODING, bytes([settings.coding])),
    ]


def is_same_value(expected: RnodeMessage, answer: bytes) -> bool:
    """Return True if the radio's answer contains the value that was set with `expected`."""
    if expected.command == RnodeCommand.FREQUENCY:
        off = int.from_bytes(answer, "big") - int.from_bytes(expected.content, "big")
        return len(answer) == len(expected.content) and abs(off) <= FREQUENCY_TOLERANCE_HZ
    return answer == expected.content


def describe_setting(command: int, content: bytes) -> str:
    """Return a setting for people, such as `869.525 MHz` or `SF8`."""
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
    """Return True if `memory`, the content of the board's EEPROM, shows that the board is
    provisioned. Return None if `memory` is too short to show it.
    """
    return memory[INFO_LOCK] == SET if len(memory) > INFO_LOCK else None


def can_start_by_itself(memory: bytes) -> bool:
    """Return True if `memory`, the content of the board's EEPROM, contains settings with which the
    radio starts at power-on.
    """
    return memory[OWN_SETTINGS : OWN_SETTINGS + 1] == bytes([SET])


def encode_air_share(percent: float) -> bytes:
    """Encode `percent` of an hour as the content of SHARE_OF_HOUR."""
    return struct.pack(">H", min(HUNDRED_PER_CENT, round(percent * 100)))


def decode_rssi(content: bytes) -> int | None:
    """Parse the signal strength in dBm. Return None if the size is wrong."""
    return content[0] - 157 if len(content) == 1 else None


def decode_snr(content: bytes) -> int | None:
    """Parse the signal-to-noise ratio in dB. Return None if the size is wrong."""
    return round(struct.unpack("b", content)[0] / 4) if len(content) == 1 else None


def decode_battery(content: bytes) -> RnodeBattery | None:
    """Parse the battery state. Return None if it is unknown or there is no battery."""
    if len(content) != 2 or not 1 <= content[0] <= 3 or content[1] > 100:
        return None
    return RnodeBattery(content[1], charging=content[0] == 2)
