"""Checks whether a serial port exists and may be opened. For `fieldagent check`."""

from __future__ import annotations

import errno
import grp
import os
import stat
from pathlib import Path

from fieldagent.system.finding import Finding


def check_serial_port(port: Path) -> Finding:
    """Check whether the serial port could be opened, without opening it. Return the result as a
    Finding.
    """
    try:
        mode = port.stat()
    except OSError as error:
        if error.errno != errno.ENOENT:
            return Finding(False, f"{port}: {error.strerror}")
        return Finding(
            False, f"{port} does not exist: is the modem plugged in? {_list_present_ports()}"
        )
    if not stat.S_ISCHR(mode.st_mode):
        return Finding(False, f"{port} is not a serial port")
    if not os.access(port, os.R_OK | os.W_OK):
        return Finding(False, f"{port} may not be opened: {_describe_remedy(port, mode)}")
    return Finding(True, f"{port} can be opened")


def _describe_remedy(port: Path, mode: os.stat_result) -> str:
    group = _get_group_name(mode.st_gid)
    if mode.st_mode & 0o060 == 0o060 and mode.st_gid:
        return f"`sudo usermod --append --groups {group} $USER`, and log in again"
    # Linux has a console on such a line, and the console's getty makes the line accessible only to
    # root.
    getty = f"sudo systemctl disable --now serial-getty@{port.name}"
    mode_text = f"{stat.S_IMODE(mode.st_mode):04o}"
    return f"its mode is {mode_text}, only for root. If it is a console, run `{getty}` and restart"


def _get_group_name(group: int) -> str:
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)


def _list_present_ports() -> str:
    ports = sorted(
        str(path)
        for pattern in ("ttyUSB*", "ttyACM*", "ttyAMA*", "fieldagent-*")
        for path in Path("/dev").glob(pattern)
    )
    return f"Present are {', '.join(ports)}" if ports else "No serial port is present"
