"""Recognises a board with MeshCore's KISS modem firmware and queries its settings."""

from __future__ import annotations

from typing import Any

from fieldagent.agent.channels.recognition import (
    DeviceLine,
    DeviceReport,
    Recognition,
    answer_to,
)
from fieldagent.wire import kiss
from fieldagent.wire import meshcore_kiss as wire
from fieldagent.wire.meshcore_kiss import MeshcoreCommand

NAME = "meshcore-kiss"
BAUD = 115_200
LOW_BATTERY_MV, NONE_BELOW = 3_400, 2_000
"""Millivolts below which the battery is nearly empty, and below which there is no battery."""


def _find_last(data: bytes, command: MeshcoreCommand) -> bytes | None:
    """Return the content of the last answer to `command`, or None if there is none."""
    answer = None
    for kind, content in kiss.KissDeframer().receive_data(data):
        word = wire.decode_message(content) if kind == kiss.SET_HARDWARE else None
        if word is not None and word.code == command | wire.ANSWER_FLAG:
            answer = word.content
    return answer


def _is_answer(data: bytes) -> bool:
    return _find_last(data, MeshcoreCommand.PING) is not None


async def _ask(line: DeviceLine, command: MeshcoreCommand) -> bytes:
    """Send a command and return the answer, or b'' if there is none. Older firmware does not know
    every command.
    """
    return (
        await answer_to(line, wire.ask(command), lambda output: _find_last(output, command)) or b""
    )


async def read_report(line: DeviceLine) -> DeviceReport:
    """Query the firmware, board, LoRa settings, power and battery. Values that older firmware does
    not report are left out. Raises PortLost.
    """
    version = ".".join(map(str, await _ask(line, MeshcoreCommand.VERSION)))
    board = (await _ask(line, MeshcoreCommand.NAME)).decode("utf-8", "replace")
    lora = wire.decode_settings(await _ask(line, MeshcoreCommand.GET_RADIO))
    power = int.from_bytes(await _ask(line, MeshcoreCommand.GET_POWER))
    millivolts = wire.decode_number(await _ask(line, MeshcoreCommand.BATTERY)) or 0
    is_set = lora is not None and lora.frequency > 0
    facts: dict[str, Any] = {
        "firmware": version,
        "board": board or None,
        "frequency": None if lora is None else lora.frequency or None,
        "bandwidth": None if lora is None else lora.bandwidth or None,
        "spreading": None if lora is None else lora.spreading or None,
        "coding": None if lora is None else lora.coding or None,
        "power": power if is_set else None,
        "batteryMillivolts": millivolts or None,
    }
    lines = ["not set since its start: the agent sets it"]
    if lora is not None and is_set:
        lines = [f"set to {lora.format_settings()}, {power} dBm"]
    faults = []
    if lora is None:
        lines = []
        faults.append(
            "the board answers a ping, but nothing else: unplug the board, and plug it in again"
        )
    if millivolts >= NONE_BELOW:
        lines.append(f"the battery has {millivolts / 1000:.2f} V")
        if millivolts < LOW_BATTERY_MV:
            faults.append(
                f"the battery has {millivolts / 1000:.2f} V: charge the battery. A board loses its"
                " settings if its power dips"
            )
    board_text = f" on {board}" if board else ""
    device_kind = f"MeshCore's KISS modem firmware {version}{board_text}"
    return DeviceReport(device_kind, tuple(lines), tuple(faults), facts)


RECOGNITION = Recognition(
    NAME,
    5,
    BAUD,
    lambda: wire.ask(MeshcoreCommand.PING),
    _is_answer,
    read_report,
)
"""The question of this kind is sent last, because KISS's "SetHardware" has a different meaning for
each TNC."""
