"""`fieldagent check`: checks whether the agent can work on this machine, and shows the fixes if it
cannot.
"""

from __future__ import annotations

import argparse
import errno
import os
import pwd
import shlex
import shutil
import socket
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

from fieldagent.agent.channels.healing_steps import check_step
from fieldagent.agent.channels.serial_check import check_serial_port
from fieldagent.agent.kit_part import (
    KitPart,
    find_enabled_parts,
    get_device_parts,
    get_device_ports,
)
from fieldagent.agent.modem_healing import make_healing
from fieldagent.agent.network_page import get_files
from fieldagent.agent.outbound.budget import compute_sos_reserve
from fieldagent.agent.satellites.registry import load_modem
from fieldagent.agent.settings import ENVIRONMENT, Settings, get_channels, load
from fieldagent.cli.findings import check_map, make_settings_finding, print_findings
from fieldagent.kit.local_http import CallFailed, call
from fieldagent.system.as_owner import switch_to_owner_of
from fieldagent.system.directories import is_held
from fieldagent.system.exit_codes import MISSING, OK, SETTINGS
from fieldagent.system.extension import import_own
from fieldagent.system.finding import Finding
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.signals import run_breakable
from fieldagent.system.wording import describe_reason, format_count

HUB_TIMEOUT_S = 30.0
"""Seconds within which the hub must respond."""
AGENT_TIMEOUT_S = 5.0
"""Seconds within which a running agent must respond."""


def check(arguments: argparse.Namespace) -> int:
    """Print each finding. Bad findings go to standard error. Return MISSING if there is no settings
    file, and SETTINGS if there is any other fault.
    """
    code = SETTINGS
    try:
        settings = load(arguments.config)
    except InvalidSettings as invalid:
        findings = [Finding(False, str(line)) for line in str(invalid).splitlines()]
    except FileNotFoundError as error:
        findings, code = [Finding(False, str(error))], MISSING
    except OSError as error:
        findings = [Finding(False, f"the settings cannot be read: {describe_reason(error)}")]
    else:
        findings = [make_settings_finding(ENVIRONMENT), *_check_as_agent(settings)]
    return OK if print_findings(findings, as_json=arguments.json) else code


def _check_as_agent(settings: Settings) -> Iterator[Finding]:
    """Make the checks as the agent's user, and yield the findings. Root must not open files in this
    user's folder.
    """
    try:
        switch_to_owner_of(settings.state_directory)
    except OSError as error:
        yield Finding(False, describe_reason(error))
    else:
        yield from _list_findings(settings)


def _check_reserve(limit: int, reserve: int | None) -> Finding:
    kept = compute_sos_reserve(limit, reserve)
    text = f"satellite: {kept} of {format_count(limit, 'credit')} a day are reserved for an SOS"
    if not kept:
        text += (
            ", which is sent once and not repeated when they are spent: set satellite-sos-reserve"
        )
    return Finding(True, text)


def _list_findings(settings: Settings) -> Iterator[Finding]:
    # Make the checks in the order in which a person repairs a kit: its folder, its port, its
    # channels, its hooks. Parts that are not configured are skipped. Devices are checked one after
    # another.
    running = _find_running(settings)
    yield _check_state_directory(settings.state_directory)
    yield running.finding or _check_api_port(settings.api_port)
    moved = _find_moved_ports(settings, running)
    yield from moved.values()
    if not get_channels(settings):
        keys = "satellite-port, radio-port or hub-address"
        yield Finding(False, f"no channel is configured: set {keys}")
    if settings.satellite_port is not None and "satellite-port" not in moved:
        yield from _check_satellite(settings, settings.satellite_port, running)
    if settings.satellite_port is not None and settings.satellite_credits_per_day is not None:
        yield _check_reserve(settings.satellite_credits_per_day, settings.satellite_sos_reserve)
    yield from _check_devices(settings, running, moved)
    yield from _check_healing(settings)
    if settings.hub_address is not None:
        yield _check_hub(settings, settings.hub_address)
    yield from _check_parts(settings, running)
    if settings.inbound_hook is not None:
        yield _check_command("inbound-hook", settings.inbound_hook)
    if settings.map_file is not None:
        yield check_map(settings.map_file)
    if settings.page_listen:
        yield _check_page(settings)
    if not (settings.inbound_hook or settings.webhook_address or _has_hook(settings)):
        yield Finding(True, "no hook is set: incoming messages are stored but not passed on")


def _check_parts(settings: Settings, agent: RunningAgent) -> Iterator[Finding]:
    """Yield the findings of each extension's part that the settings turn on."""
    for name, part in find_enabled_parts(settings.parts).items():
        if part.check and not part.devices:
            status = None if agent.status is None else agent.status.get(name)
            yield from import_own(part.check)(
                settings.parts[name], status, settings.state_directory
            )


def _check_devices(
    settings: Settings, agent: RunningAgent, moved: Container[str]
) -> Iterator[Finding]:
    """Yield the findings of each extension's modem or radio that the settings turn on."""
    enabled_parts = find_enabled_parts(settings.parts)
    for port, part in get_device_parts().items() if enabled_parts else ():
        if part.name not in enabled_parts or port in moved:
            continue
        status = None if agent.status is None else _get_member(part, agent.status)
        yield from import_own(part.check)(
            settings.parts[part.name], status, settings.state_directory
        )


def _get_member(part: KitPart, status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the member of the agent's status that describes a part's device."""
    if part.bearer or part.station:
        member: Mapping[str, Any] = status["channels"]["Cellular" if part.bearer else "Radio"]
        return member
    return status.get(part.name)


def _has_hook(settings: Settings) -> bool:
    """Return True if an extension's part takes inbound payloads."""
    return any(part.takes_inbound for part in find_enabled_parts(settings.parts).values())


MOVED_PORT_TEXT = (
    "{name} is {port}, but the running agent uses {used}: restart the agent, or correct the setting"
)


def _find_moved_ports(settings: Settings, agent: RunningAgent) -> dict[str, Finding]:
    """Return a fault for each port in the settings that the running agent does not use, by the name
    of its setting. The agent reports only on the ports that it uses.
    """
    ports_in_use = (agent.status or {}).get("ports")
    wanted_ports = {
        "satellite-port": settings.satellite_port,
        **get_device_ports(settings.parts),
    }
    return {
        name: Finding(
            False,
            MOVED_PORT_TEXT.format(name=name, port=port, used=ports_in_use.get(name) or "none"),
        )
        for name, port in wanted_ports.items()
        if ports_in_use is not None and port is not None and ports_in_use.get(name) != str(port)
    }


def _check_healing(settings: Settings) -> Iterator[Finding]:
    for healing in make_healing(settings).values():
        for step in healing.steps:
            if step.kind == "command" and healing.command is not None:
                yield _check_command(f"{healing.channel}-recovery-command", healing.command)
            else:
                yield check_step(healing, step)


class RunningAgent(NamedTuple):
    """The agent that runs with these settings, if there is one."""

    finding: Finding | None = None
    """Finding about the agent. None if no agent runs."""
    status: Mapping[str, Any] | None = None
    """Status of the agent. None if it did not respond."""


def _find_running(settings: Settings) -> RunningAgent:
    """Query the agent at the port of the settings. Return a finding about the agent, and the
    agent's status.
    """
    port, is_lock_held = settings.api_port, is_held(settings.state_directory)
    try:
        status = call(port, "GET", "/api/status", timeout=AGENT_TIMEOUT_S).body if port else None
        version = status["version"] if status else ""
    except (CallFailed, TypeError, KeyError):
        status, version = None, ""
    if status is not None and is_lock_held is False:
        another = (
            f"port {port} is used by an agent with another state-directory: stop that agent, or set"
        )
        return RunningAgent(Finding(False, f"{another} api-port"), status)
    if status is not None:
        text = f"fieldagent {version} runs and answers on port {port}"
        return RunningAgent(Finding(True, text), status)
    if is_lock_held:
        running_text = f"an agent runs in {settings.state_directory}"
        if port == 0:
            return RunningAgent(
                Finding(
                    True, f"{running_text}; with api-port=0 only the agent's log shows the port"
                )
            )
        mend = "if api-port was changed, restart the agent"
        return RunningAgent(
            Finding(False, f"{running_text} and does not answer on port {port}: {mend}")
        )
    return RunningAgent()


def _check_page(settings: Settings) -> Finding:
    pass_phrase = get_files(settings).pass_phrase
    try:
        is_set = pass_phrase.exists()
    except OSError as error:
        return Finding(
            False, f"{describe_reason(error)}: only the agent's user can read the passphrase"
        )
    if not is_set:
        text = "page-listen is set without a passphrase: set one with `fieldagent page --set`"
        return Finding(False, text)
    return Finding(True, "people of page-listen may sign in to the page: `fieldagent page`")


def _check_state_directory(directory: Path) -> Finding:
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return Finding(False, _find_unwritable(directory, existing))
    free = shutil.disk_usage(existing).free
    if free < 20_000_000:
        return Finding(False, f"{existing} has {free // 1000} kB left: the journal needs 20 MB")
    return Finding(True, f"the journal can be written in {directory}")


def _find_unwritable(directory: Path, existing: Path) -> str:
    me = _find_user(os.geteuid())
    if existing != directory:
        make = f"sudo install --directory --owner={me} --mode=0700 {directory}"
        return (
            f"{directory} does not exist, and {me} cannot create it: run `{make}`, or set"
            " state-directory"
        )
    owner = existing.stat().st_uid
    mend = f"run this as user {owner}" if owner != os.geteuid() else f"`chmod u+rwx {existing}`"
    return f"{existing} cannot be written by {me}: {mend}, or set state-directory"


def _find_user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _check_api_port(port: int) -> Finding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                problem = "another program uses it; stop that program, or set api-port"
                return Finding(False, f"port {port} is in use: {problem}")
            return Finding(False, f"port {port} cannot be used: {error.strerror}")
    return Finding(True, f"port {port} is free for the local API")


def _check_satellite(settings: Settings, port: str, agent: RunningAgent) -> Iterator[Finding]:
    if agent.status is not None:
        yield _check_as_agent_sees(port, agent.status["channels"]["Satellite"])
    elif agent.finding is not None:
        yield Finding(True, f"{port} is in use by the running agent, so it was not opened")
    else:
        present = check_serial_port(Path(port))
        yield present
        if present.good:
            kind, baud = load_modem(settings.satellite_modem), settings.satellite_baud
            yield from kind.check(port, baud, settings.satellite_own)


def _check_as_agent_sees(port: str, channel: Mapping[str, Any]) -> Finding:
    if not channel["configured"]:
        return Finding(False, f"the running agent does not use {port}: restart the agent")
    is_bad = channel["state"] in ("absent", "fault")
    modem_text = f"modem {channel['imei']}" if "imei" in channel else "the modem"
    reason_text = f" ({channel['reason']})" if channel["reason"] else ""
    bars = "unknown" if channel["signal"] is None else f"{channel['signal']} of 5"
    state = f"{channel['state']}{reason_text}, signal {bars}"
    return Finding(not is_bad, f"{port}: the running agent reports for {modem_text}: {state}")


def _check_hub(settings: Settings, address: str) -> Finding:
    """Check the connection to the hub: open a WebSocket over the link's interface. The link of a
    running agent is not affected.
    """
    import trio

    from fieldagent.agent.channels.connecting import Unreachable
    from fieldagent.agent.channels.hub_connection import HubAddress, probe

    token, interface = settings.hub_token or "", settings.cellular_interface
    hub = HubAddress(address, token, settings.hub_ca_file, interface)

    async def ask_hub() -> str:
        with trio.move_on_after(HUB_TIMEOUT_S):
            try:
                await probe(hub)
            except Unreachable as fault:
                return fault.reason
            return ""
        return f"it does not answer within {HUB_TIMEOUT_S:g} s"

    if fault := run_breakable(ask_hub):
        return Finding(False, f"{address}: {fault}")
    interface_text = f" over {interface}" if interface else ""
    return Finding(True, f"{address} accepts a WebSocket{interface_text} and the token")


def _check_command(name: str, command: str) -> Finding:
    try:
        command_words = shlex.split(command)
    except ValueError as error:
        return Finding(False, f"{name} is not a valid shell command line: {error}")
    program = next((command_word for command_word in command_words if "=" not in command_word), "")
    if "/" in program and not os.access(program, os.X_OK):
        return Finding(False, f"{name}: {program} does not exist or is not executable")
    return Finding(True, f"{name} runs {program}")
