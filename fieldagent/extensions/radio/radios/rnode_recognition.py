"""Recognises a board with RNode firmware and queries its settings. A command with zero or FF in
place of the value queries a setting without changing it.

The board's EEPROM shows whether it is provisioned (RNode_Firmware, ROM.h). The air-time limits are
not queried, because a query would change them.
"""

from __future__ import annotations

from typing import Any

from fieldagent.agent.channels.recognition import (
    DeviceLine,
    DeviceReport,
    Recognition,
    answer_to,
)
from fieldagent.wire import kiss
from fieldagent.wire import rnode as wire
from fieldagent.wire.lora import LoraSettings
from fieldagent.wire.rnode import RnodeCommand, RnodeError

NAME = "rnode"
BAUD = 115_200


def _find_last(data: bytes, command: int) -> bytes | None:
    """Return the content of the last frame with `command`, or None if there is none."""
    frames = [each for kind, each in kiss.KissDeframer().receive_data(data) if kind == command]
    return frames[-1] if frames else None


def _is_answer(data: bytes) -> bool:
    return _find_last(data, RnodeCommand.DETECT) == wire.DETECTED


async def _ask(line: DeviceLine, command: RnodeCommand, content: bytes) -> bytes:
    """Send a command and return the answer, or b'' if there is none. Older firmware does not know
    every command.
    """
    frame = wire.make_command_frame(command, content)
    return await answer_to(line, frame, lambda output: _find_last(output, command)) or b""


async def read_report(line: DeviceLine) -> DeviceReport:
    """Query the firmware, the radio's state, its LoRa settings and its memory. Raises PortLost."""
    version = await _ask(line, RnodeCommand.VERSION, wire.OFF)
    firmware = ".".join(map(str, version))
    is_on = await _ask(line, RnodeCommand.STATE, wire.STATE_ASK) == wire.STATE_ON
    replies = [await _ask(line, command, content) for command, content in wire.QUESTIONS]
    frequency, bandwidth, spreading, coding, power = (int.from_bytes(each) for each in replies)
    memory = await _ask(line, RnodeCommand.READ_MEMORY, wire.OFF)
    provisioned = wire.is_provisioned(memory)
    facts: dict[str, Any] = {
        "firmware": firmware,
        "on": is_on,
        "frequency": frequency or None,
        "bandwidth": bandwidth or None,
        "spreading": spreading or None,
        "coding": coding or None,
        "power": power if frequency else None,
        "provisioned": provisioned,
    }
    state = "its radio is on" if is_on else "its radio is off until an agent turns it on"
    lines = [state]
    if frequency:
        lora = LoraSettings(frequency, bandwidth, spreading, coding)
        lines.append(f"set to {lora.format_settings()}, {power} dBm")
    if wire.can_start_by_itself(memory):
        lines.append("the board starts with its stored settings until an agent changes them")
    return DeviceReport(
        f"RNode {firmware or 'of unknown firmware'}",
        tuple(lines),
        tuple(_list_troubles(version, firmware, provisioned=provisioned)),
        facts,
    )


def _list_troubles(version: bytes, firmware: str, *, provisioned: bool | None) -> list[str]:
    if not version:
        return ["it reports an RNode and then stops: unplug it, and plug it in again"]
    troubles = []
    if tuple(version) < wire.OLDEST_FIRMWARE:
        troubles.append(
            f"the firmware is RNode {firmware}, but 1.52 or later is needed: update it with"
            " `rnodeconf --update` and its port"
        )
    if provisioned is False:
        troubles.append(wire.BROKEN_ERRORS[RnodeError.NOT_PROVISIONED])
    return troubles


RECOGNITION = Recognition(
    NAME,
    1,
    BAUD,
    lambda: wire.make_command_frame(RnodeCommand.DETECT, wire.DETECT),
    _is_answer,
    read_report,
)
"""The question of this kind is sent first, because an RNode obeys more bytes of other kinds'
questions than any other kind of board."""
