"""Recognises a MeshCore companion radio and queries its settings. The report contains no channel
keys, and messages remain in the radio.
"""

from __future__ import annotations

from typing import Any

import trio

from fieldagent.agent.channels.radio_modem import RadioLost
from fieldagent.agent.channels.recognition import DeviceLine, DeviceReport, Recognition
from fieldagent.extensions.people.contract import shorten_handle
from fieldagent.extensions.people.meshcore_host import (
    FULL_CONTACTS_REASON,
    HOST_NAME,
    CompanionHost,
)
from fieldagent.wire import meshcore_companion as wire
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.lora import LoraSettings
from fieldagent.wire.meshcore_companion import CompanionCommand, CompanionMessage

NAME = "meshcore"
CONFIG_TIMEOUT_S = 30.0
"""Seconds within which the radio must send its full configuration."""


def _is_answer(reply: bytes) -> bool:
    for content in wire.CompanionDeframer().receive_data(reply):
        try:
            wire.decode_self(content)
        except RemoteProtocolError:
            continue
        return True
    return False


async def read_report(line: DeviceLine) -> DeviceReport:
    """Query the radio's configuration and return a report about it. Raises RadioLost and PortLost,
    in exception groups.
    """
    host = CompanionHost(line)
    report = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.listen)
        with trio.move_on_after(CONFIG_TIMEOUT_S):
            await host.greet()
            request = wire.make_command(CompanionCommand.GET_BATTERY)
            battery = wire.decode_battery(
                await host.request_answer(request, CompanionMessage.BATTERY)
            )
            report = _report(host, battery, len(await host.list_contacts()))
        nursery.cancel_scope.cancel()
    if report is None:
        raise RadioLost("the radio stopped while it reported its settings: restart it")
    return report


def _report(host: CompanionHost, millivolts: int | None, contacts: int) -> DeviceReport:
    own, device = host.own, host.device
    lora = LoraSettings(own.frequency * 1000, own.bandwidth, own.spreading, own.coding)
    channels = [
        {"index": each.place, "name": each.name, "private": wire.is_private(each)}
        for each in host.channels.values()
        if each.name or any(each.key)
    ]
    facts: dict[str, Any] = {
        "node": own.key.hex(),
        "name": own.name,
        "firmware": device.firmware,
        "board": device.model,
        "frequency": lora.frequency,
        "bandwidth": lora.bandwidth,
        "spreading": lora.spreading,
        "coding": lora.coding,
        "power": own.power,
        "batteryMillivolts": millivolts,
        "contacts": contacts,
        "contactsMax": device.contacts_max,
        "channels": channels,
    }
    lines = [f"set to {lora.format_settings()}, {own.power} dBm"]
    for each in channels:
        key = "a key of its own" if each["private"] else "a key that everyone has"
        lines.append(f"channel {each['index']} {each['name'] or '(without a name)'}: {key}")
    lines.append(f"the radio has {contacts} contacts of at most {device.contacts_max}")
    if millivolts:
        lines.append(f"the battery has {millivolts / 1000:.2f} V")
    is_full = 0 < device.contacts_max <= contacts
    faults = (FULL_CONTACTS_REASON.format(count=contacts),) if is_full else ()
    device_kind = (
        f"MeshCore companion {device.firmware}, {own.name} ({shorten_handle(own.key.hex())})"
    )
    return DeviceReport(device_kind, tuple(lines), faults, facts)


RECOGNITION = Recognition(
    NAME,
    3,
    wire.BAUD,
    lambda: wire.make_frame(wire.make_app_start(HOST_NAME)),
    _is_answer,
    read_report,
    tcp_port=wire.TCP_PORT,
)
