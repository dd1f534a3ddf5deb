"""`fieldagent radio`: which radio is at a port, how it is set, and what is wrong with that."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from fieldagent.kit.devices import FoundDevice, look_at, radios
from fieldagent.system.exit_codes import MISSING, OK, SETTINGS
from fieldagent.system.signals import run_breakable
from fieldagent.system.terminal import escaped


def radio(arguments: argparse.Namespace) -> int:
    """Ask what is at the port what it is; nothing is set. MISSING where none is recognised,
    SETTINGS where something is wrong with it."""
    device = run_breakable(look_at, arguments.place, radios())
    if arguments.json:
        print(json.dumps(as_json(device)))
    elif device.report is None:
        print(f"fieldagent: {escaped(device.why)}", file=sys.stderr)
    else:
        for line in in_lines(device):
            print(escaped(line))
    if device.report is None:
        return MISSING
    return SETTINGS if device.trouble else OK


def as_json(device: FoundDevice) -> dict[str, Any]:
    """Return what is known of a port, for programs."""
    facts = {} if device.report is None else {"is": device.report.what, **device.report.facts}
    return {
        "port": device.place,
        "kind": device.kind or None,
        **facts,
        "trouble": list(device.trouble),
        "why": device.why or None,
    }


def in_lines(device: FoundDevice) -> list[str]:
    """Return the same for people."""
    if device.report is None:
        return [device.why]
    bad = [f"BAD {each}" for each in device.trouble]
    return [device.report.what, *device.report.lines, *bad]
