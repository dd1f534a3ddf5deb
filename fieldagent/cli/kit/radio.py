"""`fieldagent radio`: shows the radio at a port, its settings, and its problems."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from fieldagent.kit.devices import FoundDevice, detect_device, get_radios
from fieldagent.system.exit_codes import MISSING, OK, SETTINGS
from fieldagent.system.signals import run_breakable
from fieldagent.system.terminal import escape_line


def query_radio(arguments: argparse.Namespace) -> int:
    """Query the device at the port without changing it. Return MISSING if no radio is recognised,
    and SETTINGS if the radio has a problem.
    """
    device = run_breakable(detect_device, arguments.place, get_radios())
    if arguments.json:
        print(json.dumps(encode_state(device)))
    elif device.report is None:
        print(f"fieldagent: {escape_line(device.reason)}", file=sys.stderr)
    else:
        for line in format_state_lines(device):
            print(escape_line(line))
    if device.report is None:
        return MISSING
    return SETTINGS if device.trouble else OK


def encode_state(device: FoundDevice) -> dict[str, Any]:
    """Return the state of a port, for programs."""
    facts = (
        {} if device.report is None else {"is": device.report.device_kind, **device.report.facts}
    )
    return {
        "port": device.place,
        "kind": device.kind or None,
        **facts,
        "trouble": list(device.trouble),
        "why": device.reason or None,
    }


def format_state_lines(device: FoundDevice) -> list[str]:
    """Return the state of a port, for people."""
    if device.report is None:
        return [device.reason]
    trouble_lines = [f"BAD {each}" for each in device.trouble]
    return [device.report.device_kind, *device.report.lines, *trouble_lines]
