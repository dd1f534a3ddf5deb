"""Reads the condition of the machine from Linux: disk, temperature, supply, system, uptime and last
start.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from fieldagent.wire.kit_condition import POWER, RESET, UNDER_VOLTAGE, UNKNOWN, WATCHDOG

ROOT = Path("/")
"""Root of the kernel's files and of /etc; tests use another folder."""

BATTERY_LOW = 20
"""Percentage of charge below which a battery is considered nearly empty."""
_POWER_ON, _FULL_RESETS = 0x1000, 0x222
"""Bits of a Raspberry Pi's PM_RSTS, in the terms of the kernel's bcm2835_wdt: HADPOR, and the three
bits HADSRF, HADWRF and HADDRF. The other bits of a reset may be a partition number."""
_CARD_RESET, _POWER_UNDER, _POWER_OVER = 0x20, 0x10, 0x40
"""WDIOF_CARDRESET, WDIOF_POWERUNDER and WDIOF_POWEROVER of linux/watchdog.h."""


def read_disk(folder: Path) -> tuple[int, int]:
    """Return the free bytes of the folder's volume, and the percentage used."""
    volume = os.statvfs(folder)
    used_blocks = volume.f_blocks - volume.f_bfree
    total_blocks = used_blocks + volume.f_bavail
    return volume.f_bavail * volume.f_frsize, -(
        -100 * used_blocks // total_blocks
    ) if total_blocks else 100


def read_degrees() -> int | None:
    """Return the highest temperature of the machine's thermal zones in degrees Celsius, or None if
    Linux reports none.
    """
    readings = [
        _read_number(each / "temp") for each in ROOT.glob("sys/class/thermal/thermal_zone*")
    ]
    degrees = [each for each in readings if each is not None]
    return round(max(degrees) / 1000) if degrees else None


def read_millivolts() -> int | None:
    """Return the voltage of the supply or battery in mV, or None if it is not reported."""
    for each in sorted(ROOT.glob("sys/class/power_supply/*/voltage_now")):
        if (reading := _read_number(each)) is not None:
            return round(reading / 1000)
    for each in sorted(ROOT.glob("sys/class/hwmon/hwmon*/in0_input")):
        if (reading := _read_number(each)) is not None:
            return reading
    return None


def read_battery() -> int | None:
    """Return the charge of the machine's battery in percent. If there are several, return the
    lowest. Return None if Linux reports no battery. Batteries with the scope Device, for example of
    a mouse, are ignored.
    """
    readings = [
        _read_number(each / "capacity")
        for each in ROOT.glob("sys/class/power_supply/*")
        if _read_text(each / "scope") != "Device"
    ]
    return min((each for each in readings if each is not None), default=None)


def read_throttling() -> int | None:
    """Return the bits of `wire.kit_condition.THROTTLING`, or None if they are not reported."""
    for each in ROOT.glob("sys/devices/platform/soc*/*firmware/get_throttled"):
        if (bits := _read_number(each, 16)) is not None:
            return bits
    # If the firmware's file is missing, Linux reports only the present state of the supply.
    for each in ROOT.glob("sys/class/hwmon/hwmon*/in0_lcrit_alarm"):
        if (
            _read_text(each.with_name("name")) == "rpi_volt"
            and (now := _read_number(each)) is not None
        ):
            return UNDER_VOLTAGE if now else 0
    return None


def read_uptime() -> int:
    """Return the seconds since the machine was started, including sleep."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME))


def read_system_name() -> str:
    """Return the system's name in a line, such as `Debian 13.1, image 2026-10-02`, or '' if it is
    unknown.
    """
    lines = _read_text(ROOT / "etc/os-release").splitlines()
    variables = {
        name: value.strip("\"'") for name, _, value in (line.partition("=") for line in lines)
    }
    release = variables.get("PRETTY_NAME", "")
    if variables.get("ID") in ("debian", "raspbian"):
        version = _read_text(ROOT / "etc/debian_version") or variables.get("VERSION_ID", "")
        release = f"Debian {version}".strip()
    issue = _read_text(ROOT / "etc/rpi-issue").splitlines()
    image = issue[0].rpartition(" ")[2] if issue else ""
    line = f"{release}, image {image}" if image else release
    return line if line.isprintable() else ""


def reset() -> int:
    """Return the hardware's report on the machine's last start: POWER, WATCHDOG, RESET (by a
    watchdog or by Linux itself), or UNKNOWN.
    """
    for each in sorted(ROOT.glob("sys/class/watchdog/watchdog*/bootstatus")):
        status = _read_number(each) or 0
        if status & _CARD_RESET:
            return WATCHDOG
        if status & (_POWER_UNDER | _POWER_OVER):
            return POWER
    with suppress(OSError):
        register = (ROOT / "proc/device-tree/chosen/bootloader/rsts").read_bytes()
        bits = int.from_bytes(register[:4])
        if bits & _FULL_RESETS:
            return RESET
        if bits & _POWER_ON:
            return POWER
    return UNKNOWN


def _read_text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def _read_number(file: Path, base: int = 10) -> int | None:
    with suppress(OSError, ValueError):
        return int(file.read_text(), base)
    return None
