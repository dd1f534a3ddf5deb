"""`fieldagent radio`: who is at a port with Meshtastic firmware, how it is set, what is wrong."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import trio

from fieldagent.agent.channels.radio_modem import RadioLost
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.agent.radios.meshtastic_host import RadioFacts, attended
from fieldagent.system.error_groups import first_error
from fieldagent.system.exit_codes import MISSING, OK, SETTINGS
from fieldagent.system.terminal import escaped
from fieldagent.wire import meshtastic as wire
from fieldagent.wire.meshtastic import Role


def radio(given: argparse.Namespace) -> int:
    try:
        facts = trio.run(_ask, given.place)
    except* (RadioLost, PortLost) as lost:
        print(f"fieldagent: {escaped(str(first_error(lost)))}", file=sys.stderr)
        sys.exit(MISSING)
    found = told(facts)
    if given.json:
        print(json.dumps(found))
    else:
        for line in in_lines(found):
            print(escaped(line))
    return SETTINGS if found["trouble"] else OK


async def _ask(place: str) -> RadioFacts:
    async with attended(place, wire.BAUD, wants_nodes=False) as host:
        return host.facts


def told(facts: RadioFacts) -> dict[str, Any]:
    """Return what a radio told of itself; no key is among it."""
    lora = wire.PRESETS.get(facts.lora.modem_preset)
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
    return {
        "node": wire.node_id(facts.number),
        "firmware": facts.firmware,
        "region": facts.lora.region,
        "preset": None if lora is None else lora.in_words().partition(", ")[2],
        "hops": facts.lora.hop_limit,
        "channels": channels,
        "trouble": facts.trouble(),
    }


def in_lines(found: dict[str, Any]) -> list[str]:
    """Return the same for people."""
    lines = [f"Meshtastic {found['firmware']}, node {found['node']}"]
    if found["preset"]:
        lines.append(f"set to {found['preset']}, region {found['region']}, {found['hops']} hops")
    for each in found["channels"]:
        key = "a key of its own" if each["private"] else "no key that others lack"
        passed_on = ", passed on by MQTT" if each["mqtt"] else ""
        name = each["name"] or "(without a name)"
        lines.append(f"channel {each['index']} {name}: {each['role']}, {key}{passed_on}")
    return [*lines, *([f"BAD {found['trouble']}"] if found["trouble"] else [])]
