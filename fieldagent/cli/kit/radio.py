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


def radio(given: argparse.Namespace) -> int:
    """Ask what is at the port what it is; nothing is set. MISSING where none is recognised,
    SETTINGS where something is wrong with it."""
    found = run_breakable(look_at, given.place, radios())
    if given.json:
        print(json.dumps(as_json(found)))
    elif found.report is None:
        print(f"fieldagent: {escaped(found.why)}", file=sys.stderr)
    else:
        for line in in_lines(found):
            print(escaped(line))
    if found.report is None:
        return MISSING
    return SETTINGS if found.trouble else OK


def as_json(found: FoundDevice) -> dict[str, Any]:
    """Return what is known of a port, for programs."""
    told = {} if found.report is None else {"is": found.report.what, **found.report.facts}
    return {
        "port": found.place,
        "kind": found.kind or None,
        **told,
        "trouble": list(found.trouble),
        "why": found.why or None,
    }


def in_lines(found: FoundDevice) -> list[str]:
    """Return the same for people."""
    if found.report is None:
        return [found.why]
    bad = [f"BAD {each}" for each in found.trouble]
    return [found.report.what, *found.report.lines, *bad]
