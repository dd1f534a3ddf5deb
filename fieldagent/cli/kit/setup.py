"""`fieldagent setup`: detects the connected devices, and writes settings for them. `fieldagent
radio`: shows the radio at a port, its settings, and its problems.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fieldagent.agent.settings import INSTALLED, get_default_path
from fieldagent.kit import proposal
from fieldagent.kit.devices import (
    FoundDevice,
    detect_device,
    detect_devices,
    get_all_kinds,
    get_radios,
)
from fieldagent.kit.proposal import SEAT_ORDER, Proposal, propose
from fieldagent.kit.provision import write_settings_file
from fieldagent.kit.serial_ports import find_lasting_name, is_same_port, list_serial_ports
from fieldagent.system.exit_codes import IO_FAILED, MISSING, OK, SETTINGS, USAGE
from fieldagent.system.java_properties import NoProperties
from fieldagent.system.java_properties import read_pairs as pairs_in
from fieldagent.system.log_lines import print_failure, refuse_settings
from fieldagent.system.properties import InvalidSettings, read_file
from fieldagent.system.signals import run_breakable
from fieldagent.system.terminal import escape_line
from fieldagent.system.wording import describe_reason, format_count

SLOW_PORT_TEXT = "a port without an answer takes about 20 seconds"


def run_setup(arguments: argparse.Namespace) -> int:
    """Detect devices, propose settings, and write them if the user agrees or --yes is set. If
    --dry-run is set, write nothing. Return USAGE if the user does not agree.
    """
    # Each exit has its own code, and nothing is written before all checks have passed.
    path = arguments.config or (INSTALLED if os.geteuid() == 0 else get_default_path())
    try:
        text = read_file(path, is_required=False)
        before = dict(pairs_in(text))
    except InvalidSettings as wrong:
        return refuse_settings(wrong)
    except NoProperties as wrong:
        return refuse_settings(InvalidSettings(path, [str(wrong)]))
    except OSError as error:
        print_failure(f"the settings cannot be read: {describe_reason(error)}")
        return IO_FAILED
    devices = _find_devices(arguments, before)
    given_settings = dict(arguments.set)
    plan = propose(devices, text, given_settings)
    is_asked = not (arguments.yes or arguments.dry_run or arguments.json) and sys.stdin.isatty()
    if is_asked:
        plan, given_settings = _ask_for_settings(plan, devices, text, given_settings)
    try:
        changed = proposal.change_text(text, plan.settings, path)
    except InvalidSettings as wrong:
        return refuse_settings(wrong)
    if arguments.json:
        print(json.dumps(_encode_proposal(devices, plan, path)))
    else:
        _print_plan(plan, before, path)
    if not plan.settings:
        return _choose_exit_code(devices, plan)
    if arguments.dry_run or not (arguments.yes or (is_asked and _is_agreed(path))):
        print_failure(
            "nothing was written" + ("" if arguments.dry_run else "; use --yes in scripts")
        )
        return OK if arguments.dry_run else USAGE
    try:
        write_settings_file(changed, path)
    except OSError as error:
        print_failure(f"the settings were not written: {describe_reason(error)}")
        return IO_FAILED
    if not arguments.json:
        print(
            escape_line(
                f"{path} is written; `fieldagent check --config {path}` checks all settings"
            )
        )
        print(
            "a running agent uses the new settings after a restart: `sudo systemctl "
            "restart fieldagent`"
        )
    return _choose_exit_code(devices, plan)


def _find_devices(
    arguments: argparse.Namespace, old_settings: Mapping[str, str]
) -> list[FoundDevice]:
    """Detect and print the devices at the named ports, or at all ports, and at the ports in the
    settings.
    """
    places = [find_lasting_name(each) for each in arguments.places] or list_serial_ports()
    for seat in SEAT_ORDER:
        port = old_settings.get(seat.port, "")
        if port and not port.startswith("udp://"):
            # A port can have several names. Use the name in the settings, so that a proposal does
            # not change it.
            places = [port, *(each for each in places if not is_same_port(each, port))]
    places = list(dict.fromkeys(places))
    if not arguments.json and places:
        print(f"asking {format_count(len(places), 'port')}; {SLOW_PORT_TEXT}", flush=True)
    devices = run_breakable(detect_devices, places, get_all_kinds())
    if not arguments.json:
        for each in devices:
            first, *rest = format_state_lines(each)
            heading = first if each.report is None else f"{each.place}: {first}"
            print(escape_line(heading))
            for line in rest:
                print(escape_line(f"    {line}"))
    return devices


def _ask_for_settings(
    plan: Proposal, devices: list[FoundDevice], text: str, more: Mapping[str, str]
) -> tuple[Proposal, dict[str, str]]:
    """Ask for settings that no device can report. If the answer is empty, leave the device out.
    Return the new proposal, and all settings that people have given.
    """
    answers = dict(more)
    for port, names in plan.needed.items():
        print(escape_line(f"{port}={plan.by_port[port][port]} needs more; nothing leaves it out"))
        for name in names:
            setting_text = proposal.describe_setting(
                name, {**dict(pairs_in(text)), **plan.by_port[port]}
            )
            value = _read_answer(f"{name} ({setting_text}): ")
            if not value:
                break
            answers[name] = value
    return propose(devices, text, answers), answers


def _read_answer(question: str) -> str:
    """Return the answer that the user types, or '' at the end of input."""
    try:
        return input(escape_line(question)).strip()
    except EOFError:
        return ""


def _is_agreed(path: Path) -> bool:
    return _read_answer(f"Write this to {path}? [y/N] ").lower() in ("y", "yes")


def _print_plan(plan: Proposal, old_settings: Mapping[str, str], path: Path) -> None:
    for port in plan.unchanged:
        print(escape_line(f"{port}={old_settings[port]} stays"))
    for port, names in plan.needed.items():
        text = f"{port} is left out, as it needs {', '.join(names)}"
        print(escape_line(f"{text}: name each with --set {names[0]}=… or in {path}"))
    for name, value in plan.settings.items():
        was = f"  (was {old_settings[name]})" if name in old_settings else ""
        print(escape_line(f"+ {name}={proposal.mask_value(name, value)}{was}"))
    if not plan.settings:
        print("nothing to set")


def _encode_proposal(devices: list[FoundDevice], plan: Proposal, path: Path) -> dict[str, Any]:
    return {
        "ports": [encode_state(each) for each in devices],
        "file": str(path),
        "kept": list(plan.unchanged),
        "settings": {
            name: proposal.mask_value(name, value) for name, value in plan.settings.items()
        },
        "needed": {port: list(names) for port, names in plan.needed.items()},
    }


def _choose_exit_code(devices: list[FoundDevice], plan: Proposal) -> int:
    if plan.needed or any(each.trouble for each in devices):
        return SETTINGS
    return OK if plan.settings or plan.unchanged else MISSING


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
