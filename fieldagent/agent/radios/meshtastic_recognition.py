"""Recognises a Meshtastic radio, for people or for kits, and queries its settings. The report never
contains keys.
"""

from __future__ import annotations

from typing import Any

import trio

from fieldagent.agent.channels.radio_modem import RadioLost
from fieldagent.agent.channels.recognition import DeviceLine, DeviceReport, Recognition
from fieldagent.agent.radios.meshtastic_host import MeshtasticHost, RadioFacts
from fieldagent.wire import meshtastic as wire
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.meshtastic import Role, ToRadio

NAME = "meshtastic"
CONFIG_TIMEOUT_S = 30.0
"""Longest time in seconds until a radio has sent its full configuration."""


def _encode_question() -> bytes:
    return wire.WAKE_BYTES + wire.encode_to_radio(ToRadio(want_config=wire.WITHOUT_NODES_NONCE))


def _is_answer(data: bytes) -> bool:
    """Return True if a `my_info` was received. A device that sends no `my_info` is not considered a
    radio.
    """
    for message in wire.Deframer().receive_data(data):
        try:
            answer = wire.decode_from_radio(message)
        except RemoteProtocolError:
            continue
        if answer.my_info is not None and answer.my_info.number:
            return True
    return False


async def read_report(line: DeviceLine) -> DeviceReport:
    """Query the radio's configuration and return a report. Raises RadioLost and PortLost, in
    exception groups.
    """
    host = MeshtasticHost(line, wants_nodes=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.listen)
        with trio.move_on_after(CONFIG_TIMEOUT_S) as limit:
            await host.request_configuration()
        nursery.cancel_scope.cancel()
    if limit.cancelled_caught:
        raise RadioLost("the radio stopped while it reported its settings: restart it")
    return _make_report(host.facts)


def _make_report(facts: RadioFacts) -> DeviceReport:
    lora = facts.lora
    preset = wire.PRESETS.get(lora.modem_preset)
    channels = [
        {
            "index": each.place,
            "name": each.settings.name,
            "role": "primary" if each.role == Role.PRIMARY else "secondary",
            "private": wire.is_private(each.settings),
            "mqtt": each.settings.uplink,
        }
        for each in facts.channels.values()
        if each.settings is not None and each.role != Role.OFF
    ]
    details: dict[str, Any] = {
        "node": wire.format_node_id(facts.number),
        "firmware": facts.firmware,
        "region": lora.region,
        "preset": None if preset is None else preset.format_settings().partition(", ")[2],
        "hops": lora.hop_limit,
        "power": lora.power or None,
        "channels": channels,
    }
    own = [str(each["name"]) for each in channels if each["private"] and each["index"]]
    settings = {f"{NAME}-channel": own[0]} if len(own) == 1 else {}
    faults = [each for each in (facts.describe_trouble(), _describe_unlawful(facts)) if each]
    device_kind = f"Meshtastic {facts.firmware}, node {details['node']}"
    return DeviceReport(device_kind, tuple(_list_lines(details)), tuple(faults), details, settings)


def _describe_unlawful(facts: RadioFacts) -> str:
    share = wire.DUTY_CYCLES.get(facts.lora.region)
    if share is None or not facts.lora.overrides_duty_cycle:
        return ""
    return (
        f"the radio is set to pass over its region's limit of {share:g} per cent of an hour: turn"
        " 'override duty cycle' off with its app"
    )


def _list_lines(details: dict[str, Any]) -> list[str]:
    lines = []
    if details["preset"]:
        region = wire.REGIONS.get(details["region"], f"region {details['region']}")
        power = f", {details['power']} dBm" if details["power"] else ""
        lines.append(f"set to {details['preset']}{power}, {region}, {details['hops']} hops")
    if (share := wire.DUTY_CYCLES.get(details["region"])) is not None:
        lines.append(
            f"the firmware limits airtime to {share:g} per cent of any hour, as the region requires"
        )
    for each in details["channels"]:
        key = "a key of its own" if each["private"] else "no private key"
        passed_on = ", passed on by MQTT" if each["mqtt"] else ""
        name = each["name"] or "(without a name)"
        lines.append(f"channel {each['index']} {name}: {each['role']}, {key}{passed_on}")
    return lines


RECOGNITION = Recognition(
    NAME, 2, wire.BAUD, _encode_question, _is_answer, read_report, tcp_port=wire.TCP_PORT
)
