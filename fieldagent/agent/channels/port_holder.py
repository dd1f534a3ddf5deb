"""Finds the program that uses a serial port, if the port cannot be opened. /proc/locks shows which
process has locked a port (proc(5)), and an agent locks each of its ports.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

PROC = Path("/proc")


def describe_holder(port: str) -> str:
    """Return a text about the program that uses `port`, and how to end this program. In messages,
    the text follows the port's name.
    """
    process = _find_locker(port)
    if process is None:
        return "is in use by another program: end that first"
    unit = _find_unit(process)
    if unit:
        program_name = "the agent" if unit == "fieldagent" else unit
        stop = f"`sudo systemctl stop {unit}` frees it, and `start` starts it again"
        return f"is in use by {program_name} (process {process}): {stop}"
    command = _read_command(process)
    program_name = "the agent" if _is_agent(command) else f"`{' '.join(command)[:60]}`"
    if not command:
        program_name = "another program"
    return f"is in use by {program_name} (process {process}): `kill {process}` ends it"


def _find_locker(port: str) -> int | None:
    """Return the process that has locked the port, or None if there is no such process or it is not
    visible.
    """
    try:
        file = Path(port).stat()
        locks = (PROC / "locks").read_text()
    except OSError:
        return None
    device = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    match = re.search(rf"FLOCK +ADVISORY +WRITE +([1-9][0-9]*) {device} ", locks)
    return None if match is None else int(match[1])


def _find_unit(process: int) -> str:
    """Return the system service of the process, or '' if there is none."""
    try:
        group = (PROC / str(process) / "cgroup").read_text()
    except OSError:
        return ""
    for line in group.splitlines():
        unit = line.rpartition("/")[2]
        if "/system.slice/" in line and unit.endswith(".service"):
            return unit.removesuffix(".service")
    return ""


def _read_command(process: int) -> list[str]:
    try:
        text = (PROC / str(process) / "cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return []
    return text.rstrip("\0").split("\0")


def _is_agent(command: list[str]) -> bool:
    return "run" in command and any("fieldagent" in word for word in command)
