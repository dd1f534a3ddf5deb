"""Recognises a radio node by the hello of the node link."""

from __future__ import annotations

from random import getrandbits

from fieldagent.agent.channels.air_pace import AIR_BYTES, AIR_BYTES_MIN
from fieldagent.agent.channels.recognition import (
    DeviceLine,
    DeviceReport,
    Recognition,
    answer_to,
)
from fieldagent.wire import node

NAME = "node"
BAUD = 115_200
FRAME_STARTS = b"\xc0\x94<"
"""Start bytes of the frames of KISS, Meshtastic and MeshCore's companion. A question must not
contain these bytes."""


def _encode_hello() -> bytes:
    while True:
        link = node.NodeLink(node.NodeHello(boot=getrandbits(32)))
        link.open(0.0)
        data = link.data_to_send()
        if not any(each in data for each in FRAME_STARTS):
            return data


def _read_hello_and_status(data: bytes) -> tuple[node.NodeHello | None, node.NodeStatus | None]:
    """Return the node's hello and status, each None if it was not received."""
    link = node.NodeLink(node.NodeHello(boot=0))
    link.receive_data(data, 0.0)
    hello, status = None, None
    while (event := link.next_event()) is not None:
        if isinstance(event, node.NodeOpened):
            hello = event.hello
        elif isinstance(event, node.NodeStatus):
            status = event
    return hello, status


async def read_report(line: DeviceLine) -> DeviceReport:
    """Query a node's hello and status. Return a report with the setting that its packet size
    requires. Raises PortLost.
    """
    received = bytearray()

    def are_both_received(data: bytes) -> bool | None:
        received[:] = data
        hello, status = _read_hello_and_status(data)
        return True if hello is not None and status is not None else None

    await answer_to(line, _encode_hello(), are_both_received)
    hello, status = _read_hello_and_status(bytes(received))
    if hello is None:
        return DeviceReport("a node of the node link that sent one Hello and nothing else")
    lines = [f"it accepts packets of {hello.packet_bytes} bytes"]
    battery = None if status is None else status.battery
    if battery is not None:
        lines.append(f"the battery has {battery} %")
    faults = []
    if hello.packet_bytes < AIR_BYTES_MIN:
        faults.append(
            f"it accepts packets of {hello.packet_bytes} bytes, {AIR_BYTES_MIN} are needed: give it"
            " other settings"
        )
    settings = {}
    if AIR_BYTES_MIN <= hello.packet_bytes < AIR_BYTES:
        settings["radio-packet-bytes"] = str(hello.packet_bytes)
        lines.append(f"set radio-packet-bytes={hello.packet_bytes} on each kit of the group")
    return DeviceReport(
        f"node {hello.node}, firmware {hello.firmware or 'unknown'}",
        tuple(lines),
        tuple(faults),
        {
            "node": hello.node,
            "firmware": hello.firmware,
            "packetBytes": hello.packet_bytes,
            "battery": battery,
        },
        settings,
    )


def _is_answer(data: bytes) -> bool:
    """Return True if a node's hello was received. An echo of the host's hello has no name or
    firmware.
    """
    hello, _ = _read_hello_and_status(data)
    return hello is not None and bool(hello.node or hello.firmware)


RECOGNITION = Recognition(NAME, 4, BAUD, _encode_hello, _is_answer, read_report)
