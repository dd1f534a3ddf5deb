"""After an update or a remote change of settings, checks that the agent of this kit works as well
as before. This module sends no messages.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from fieldagent.agent.outcomes import SOS_IN_MEMORY
from fieldagent.agent.settings import load
from fieldagent.kit.local_http import CallFailed, call
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.log_lines import print_failure

AGENT = "fieldagent.service"
OTHER_UNITS = ("fieldagent-track.service", "fieldagent-hub.service")
ANSWER_TIMEOUT_S = 10.0
"""Longest time in seconds until a running agent responds."""
SILENCE_S = 120.0
"""Seconds without a response after which the start of the agent is considered failed."""
START_TIMEOUT_S = 600.0
"""Longest time in seconds until a machine has started."""
CHECK_INTERVAL_S = 1.0
BOOTS = 3
"""Maximum number of boots during the trial of a program or of settings. After more boots, the trial
has failed."""
WORKING_STATES = {"ready": 2, "busy": 2, "no service": 1}
"""States in which a channel works; a higher number is better."""


@dataclass(frozen=True, slots=True)
class HealthConditions:
    """State of the agent before a change, which the agent must reach again after the change."""

    settings: Path
    channels: Mapping[str, str] = field(default_factory=dict)
    """Channels that worked, and the state of each."""
    version: str = ""
    """Version of the agent; empty means any version."""
    minutes: float = 15.0
    """Minutes within which everything must work again."""
    steady: float = 30.0
    """Seconds that the agent must have run without a restart."""


def call_systemctl(*arguments: str) -> None:
    """Call systemctl. Raises OSError if it fails."""
    command = ["systemctl", *arguments]
    if subprocess.run(command, stdin=subprocess.DEVNULL).returncode:
        raise OSError(f"`{' '.join(command)}` failed: its message is above")


def restart_others() -> None:
    """Restart the other running systemd units of the program, because they still run the old
    program file.
    """
    for unit in OTHER_UNITS:
        with suppress(OSError):
            call_systemctl("try-restart", "--no-block", unit)


def start_agent() -> None:
    """After a failure, start the agent with the current program and settings."""
    with suppress(OSError):
        call_systemctl("start", "--no-block", AGENT)


def wait_for_start() -> None:
    """Wait at most START_TIMEOUT_S until the machine's start is complete, because the agent is slow
    until then.
    """
    wait = ["systemctl", "is-system-running", "--quiet", "--wait"]
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(wait, stdin=subprocess.DEVNULL, timeout=START_TIMEOUT_S)


def start_watched(conditions: HealthConditions, boots: int) -> str:
    """Start the agent. Return the reason why it does not work, or '' if it works. `boots` is the
    number of starts of the kit during the trial.
    """
    if boots > BOOTS:
        return f"the kit was started {BOOTS} times while it was on trial"
    call_systemctl("start", "--no-block", AGENT)
    started_at = time.monotonic()
    has_answered = False
    while True:
        answer = fetch_status(conditions.settings)
        has_answered = has_answered or answer is not None
        unfitness = _find_unfitness(answer, conditions)
        waited = time.monotonic() - started_at
        if (
            not unfitness
            or waited > 60 * conditions.minutes
            or (waited > SILENCE_S and not has_answered)
        ):
            return unfitness
        time.sleep(CHECK_INTERVAL_S)


def _find_unfitness(answer: Mapping[str, Any] | None, conditions: HealthConditions) -> str:
    if answer is None:
        return f"no agent answers; see `journalctl -u {AGENT}`"
    if conditions.version and answer["version"] != conditions.version:
        return f"the running version is {answer['version']}"
    for name, before in conditions.channels.items():
        channel = answer["channels"][name]
        if WORKING_STATES.get(channel["state"], 0) < WORKING_STATES[before]:
            reason_text = f" ({channel['reason']})" if channel["reason"] else ""
            return f"{name} was {before}, and is {channel['state']}{reason_text}"
    if answer["uptime"] < conditions.steady:
        return f"it does not run for {conditions.steady:g} s without a restart"
    return ""


def fetch_status(settings: Path) -> dict[str, Any] | None:
    """Return the agent's status, or None if no agent responds or the agent is not healthy."""
    port = load(settings).api_port
    try:
        call(port, "GET", "/api/health", timeout=ANSWER_TIMEOUT_S)
        answer: dict[str, Any] = call(port, "GET", "/api/status", timeout=ANSWER_TIMEOUT_S).body
    except CallFailed:
        return None
    return answer


def find_stop_obstacle(port: int) -> str:
    """Return the reason why the agent must not be stopped now: an open SOS that is not on its disk
    would be lost. Return '' if the agent may be stopped, or if no agent responds.
    """
    try:
        answer = call(port, "GET", "/api/status", timeout=ANSWER_TIMEOUT_S).body
    except CallFailed:
        return ""
    # An older agent does not report the state of its disk. Assume that such an agent may be
    # stopped.
    disk_fault = answer["journal"].get("notOnDisk")
    return SOS_IN_MEMORY.format(disk_fault) if disk_fault and answer["sos"]["active"] else ""


def wait_until_safe_to_stop(port: int) -> None:
    """Wait, without a time limit, until a stop of the agent would lose no SOS."""
    announced = ""
    while obstacle := find_stop_obstacle(port):
        if obstacle != announced:
            print_failure(f"the agent is not stopped yet: {obstacle}")
        announced = obstacle
        time.sleep(ANSWER_TIMEOUT_S)


def fetch_working_channels(port: int) -> dict[str, str] | None:
    """Return the state of each channel that works now, or None if no agent answers."""
    try:
        channels = call(port, "GET", "/api/status", timeout=ANSWER_TIMEOUT_S).body["channels"]
    except CallFailed:
        return None
    return {
        name: each["state"] for name, each in channels.items() if each["state"] in WORKING_STATES
    }
