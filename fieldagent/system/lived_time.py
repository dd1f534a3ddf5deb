"""Time that nobody sets: how long something has lived, whatever the wall clock showed meanwhile.

Gateways without a battery begin in 1970 until the network tells them better, and a clock may be set
by years at any moment. Lived time is a number like Unix time that never jumps: within a boot it
runs by CLOCK_BOOTTIME, which counts sleep as well (clock_gettime(2)). Across a boot it goes on from
what was last written down.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger(__name__)

EARLIEST = 1_767_225_600.0
"""1 January 2026, when none of this was released: a clock that shows less is wrong."""
SET = 0.5
"""Seconds: by less a clock is steered, by more it was set."""
KEEP_EVERY = 60.0
"""Seconds after which what is written down is written anew."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
HARDWARE_CLOCK = Path("/sys/class/rtc/rtc0/hctosys")
"""Holds 1 where the system took its time from a clock with a battery when it booted."""
_UNSYNCHRONISED = 5
"""What adjtimex(2) returns until somebody has set the clock by the network or a receiver."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the machine's clocks show at one moment. The wall clock is trusted where `source` tells
    from whom it has the time."""

    boot: str
    """Another one after each boot."""
    since_boot: float
    wall: float
    source: str = ""

    @property
    def trusted(self) -> bool:
        return bool(self.source)


class Base(NamedTuple):
    """What is written down, to go on from."""

    boot: str
    since_boot: float
    lived: float
    offset: float
    """What was to be added for the wall clock's time."""
    trusted: bool


def read_clocks() -> Reading:
    wall = time.time()
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return Reading(
        BOOT.read_text().strip(), since_boot, wall, _source() if wall >= EARLIEST else ""
    )


def _source() -> str:
    # Its struct is 208 bytes at most; all zero it asks and sets nothing.
    if ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512)) not in (-1, _UNSYNCHRONISED):
        return "network"
    try:
        return "hardware clock" if HARDWARE_CLOCK.read_text().strip() == "1" else ""
    except OSError:
        return ""


def lived_by(base: Base | None, seen: Reading) -> float:
    """Where lived time goes on; without a base it begins with the wall clock's."""
    if base is None:
        return seen.wall
    if base.boot == seen.boot:
        return base.lived + max(0.0, seen.since_boot - base.since_boot)
    off = seen.wall - base.offset - base.lived
    if base.trusted and seen.trusted and off >= seen.since_boot:
        return base.lived + off
    # How long the machine was off is not known: what lived lives longer rather than shorter.
    return base.lived + seen.since_boot


class LivedTime:
    """`base` is what was written down last; `look` reads the clocks."""

    def __init__(self, base: Base | None, look: Callable[[], Reading] = read_clocks) -> None:
        self._look = look
        seen = look()
        self._begun, self._since_boot = lived_by(base, seen), seen.since_boot
        self._offset = 0.0 if base is None else base.offset
        self._kept: float | None = None
        """Time since boot when it was last written down."""
        self._follow(seen)

    def now(self) -> float:
        return self._lived(self._look())

    def date(self, lived: float) -> float:
        """That moment as the wall clock has it now, Unix time: right once the clock is."""
        self._follow(self._look())
        return lived + self._offset

    def base(self) -> Base:
        seen = self._look()
        self._follow(seen)
        return Base(seen.boot, seen.since_boot, self._lived(seen), self._offset, seen.trusted)

    def due(self) -> Base | None:
        """What should be written down anew; None where that has time."""
        base = self.base()
        if self._kept is not None and base.since_boot - self._kept < KEEP_EVERY:
            return None
        return base

    def kept(self, base: Base) -> None:
        """It is on disk."""
        self._kept = base.since_boot

    def source(self) -> str:
        """From whom the wall clock has its time; empty where that is not known."""
        return self._look().source

    def _lived(self, seen: Reading) -> float:
        return self._begun + (seen.since_boot - self._since_boot)

    def _follow(self, seen: Reading) -> None:
        offset = seen.wall - self._lived(seen)
        if abs(offset - self._offset) >= SET:
            log.warning(
                "the clock was set by %+.0f s; nothing expires by that", offset - self._offset
            )
            self._offset = offset
