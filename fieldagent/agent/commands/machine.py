"""How the machine is: what Linux tells of disk, warmth, supply and uptime."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

SYS = Path("/sys/class")


def disk(folder: Path) -> tuple[int, int]:
    """Return the bytes that are free where the folder is, and the percent that are used."""
    found = os.statvfs(folder)
    used = found.f_blocks - found.f_bfree
    whole = used + found.f_bavail
    return found.f_bavail * found.f_frsize, -(-100 * used // whole) if whole else 100


def degrees(sys: Path = SYS) -> int | None:
    """Return how warm the warmest part of the processor is, in Celsius; None where nobody tells."""
    found = [_number(each / "temp") for each in sys.glob("thermal/thermal_zone*")]
    known = [each for each in found if each is not None]
    return round(max(known) / 1000) if known else None


def millivolts(sys: Path = SYS) -> int | None:
    """Return the voltage of the supply or battery; None where no part of the machine tells one."""
    for each in sorted(sys.glob("power_supply/*/voltage_now")):
        if (found := _number(each)) is not None:
            return round(found / 1000)
    for each in sorted(sys.glob("hwmon/hwmon*/in0_input")):
        if (found := _number(each)) is not None:
            return found
    return None


def uptime() -> int:
    """Return the seconds since the machine was started, sleep counted."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME))


def _number(file: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(file.read_text())
    return None
