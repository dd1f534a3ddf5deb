"""`fieldagent check`: whether the agent could work here, and what to mend if it could not."""

from __future__ import annotations

import argparse
import errno
import grp
import json
import os
import shlex
import shutil
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from fieldagent.agent.settings import Settings, load
from fieldagent.cli.exit_codes import MISSING, OK, SETTINGS
from fieldagent.cli.terminal import escaped_lines
from fieldagent.system.properties import InvalidSettings

TNC_MAX = 5.0
"""Seconds in which a KISS modem takes a connection."""
HUB_MAX = 30.0
"""Seconds in which the hub is to answer."""


class Finding(NamedTuple):
    good: bool
    text: str


def check(given: argparse.Namespace) -> int:
    code = SETTINGS
    try:
        settings = load(given.config)
    except InvalidSettings as invalid:
        findings = [Finding(False, str(line)) for line in str(invalid).splitlines()]
    except FileNotFoundError as error:
        findings, code = [Finding(False, str(error))], MISSING
    except OSError as error:
        findings = [Finding(False, f"the settings cannot be read: {error}")]
    else:
        findings = [Finding(True, "the settings are understood"), *_findings(settings)]
    good = all(finding.good for finding in findings)
    if given.json:
        print(json.dumps({"good": good, "findings": [f._asdict() for f in findings]}))
    else:
        for finding in findings:
            mark = "ok " if finding.good else "BAD"
            print(
                f"{mark} {escaped_lines(finding.text)}",
                file=sys.stdout if finding.good else sys.stderr,
            )
    return OK if good else code


def _findings(settings: Settings) -> Iterator[Finding]:
    yield _state_directory(settings.state_directory)
    yield _api_port(settings.api_port)
    if not (settings.satellite_port or settings.hub_address or settings.radio_port):
        keys = "satellite-port, radio-port or hub-address"
        yield Finding(False, f"no channel is configured: set {keys}")
    if settings.satellite_port is not None:
        yield _serial_port(Path(settings.satellite_port))
    if settings.radio_port is not None:
        yield _radio(settings.radio_port, settings.radio_protocol)
    if settings.hub_address is not None:
        yield _hub(settings, settings.hub_address)
    if settings.inbound_hook is not None:
        yield _command("inbound-hook", settings.inbound_hook)
    if settings.cellular_recovery_command is not None:
        yield _command("cellular-recovery-command", settings.cellular_recovery_command)
    if settings.inbound_hook is None and settings.webhook_address is None:
        yield Finding(True, "no hook is set: what comes in is kept, and handed to nobody")


def _state_directory(directory: Path) -> Finding:
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return Finding(False, f"{existing} cannot be written: change its owner or state-directory")
    free = shutil.disk_usage(existing).free
    if free < 20_000_000:
        return Finding(False, f"{existing} has {free // 1000} kB left: the journal needs 20 MB")
    return Finding(True, f"the journal can be written in {directory}")


def _api_port(port: int) -> Finding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                what = "an agent or something else listens there; `fieldagent status` tells"
                return Finding(False, f"port {port} is taken: {what}")
            return Finding(False, f"port {port} cannot be used: {error.strerror}")
    return Finding(True, f"port {port} is free for the local API")


def _serial_port(port: Path) -> Finding:
    try:
        mode = port.stat()
    except OSError as error:
        if error.errno != errno.ENOENT:
            return Finding(False, f"{port}: {error.strerror}")
        return Finding(False, f"{port} is not there: is the modem plugged in? {_present()}")
    if not stat.S_ISCHR(mode.st_mode):
        return Finding(False, f"{port} is no serial port")
    if not os.access(port, os.R_OK | os.W_OK):
        group = grp.getgrgid(mode.st_gid).gr_name
        return Finding(False, f"{port} may not be opened: add this user to the group {group}")
    return Finding(True, f"{port} can be opened")


def _radio(place: str, protocol: str) -> Finding:
    if not place.startswith("tcp://"):
        return _serial_port(Path(place))
    if protocol != "kiss":
        return Finding(False, f"{place}: a node is on a serial port; a KISS modem may be on TCP")
    where = urlsplit(place)
    try:
        socket.create_connection((where.hostname or "", where.port or 8001), TNC_MAX).close()
    except (OSError, ValueError) as error:
        return Finding(False, f"{place} cannot be reached ({error}): does the KISS modem run?")
    return Finding(True, f"{place} can be reached")


def _present() -> str:
    found = sorted(
        str(path)
        for pattern in ("ttyUSB*", "ttyACM*", "ttyAMA*", "fieldagent-*")
        for path in Path("/dev").glob(pattern)
    )
    return f"Present are {', '.join(found)}" if found else "No serial port is present"


def _hub(settings: Settings, address: str) -> Finding:
    """Asked over the interface that the link takes; it opens none, and ends none."""
    import trio

    from fieldagent.agent.channels.hub_connection import HubAddress, Unreachable, probe

    token, interface = settings.hub_token or "", settings.cellular_interface
    hub = HubAddress(address, token, settings.hub_ca_file, interface)

    async def ask() -> str:
        with trio.move_on_after(HUB_MAX):
            try:
                await probe(hub)
            except Unreachable as trouble:
                return trouble.reason
            return ""
        return f"it does not answer within {HUB_MAX:g} s"

    if trouble := trio.run(ask):
        return Finding(False, f"{address}: {trouble}")
    over = f" over {interface}" if interface else ""
    return Finding(True, f"{address} answers{over} and knows the token")


def _command(name: str, command: str) -> Finding:
    try:
        words = shlex.split(command)
    except ValueError as error:
        return Finding(False, f"{name} is no shell command line: {error}")
    program = next((word for word in words if "=" not in word), "")
    if "/" in program and not os.access(program, os.X_OK):
        return Finding(False, f"{name}: {program} is not there or not executable")
    return Finding(True, f"{name} runs {program}")
