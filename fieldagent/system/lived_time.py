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
from math import inf
from pathlib import Path

from fieldagent.system.clock_bounds import EARLIEST, LATEST
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

log = logging.getLogger(__name__)

SET = 0.5
"""Seconds: by less a clock is steered, by more it was set."""
KEEP_EVERY = 60.0
"""Seconds after which what is written down is written anew."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
HARDWARE_CLOCK = Path("/sys/class/rtc/rtc0/hctosys")
"""Holds 1 where the system took its time from a clock with a battery when it booted."""
_UNSYNCHRONISED = 5
"""What adjtimex(2) returns until somebody has set the clock by the network or a receiver."""
ASK_EVERY = 5.0
"""Seconds for which the kernel's word on the clock counts; one that was set is asked about anew."""
FAR = 30.0
"""Seconds by which the system's clock is wrong: TLS and people's logs suffer from more."""
CONTRADICTS = 3600.0
"""Seconds between two sources of which one at least is wrong."""
NEWS = 2.0
"""Seconds by which others may tell the time differently each time: the hub tells whole ones."""
GPS = "GPS"
RANKS = (GPS, "satellite", "hub")
"""Who else tells the time, the best first. Where the system's clock is not trusted, dates follow
the best who did since the boot; root's unit sets the clock by it (`kit.system_clock`)."""


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
        """Return whether somebody who knows the time has set the wall clock."""
        return bool(self.source)


class TimeTold(NamedTuple):
    """What the time is, as somebody else than the system has told it."""

    source: str
    boot: str
    since_boot: float
    """Seconds, at which it was `unix`."""
    unix: float


class Base(NamedTuple):
    """What is written down, to go on from."""

    boot: str
    since_boot: float
    lived: float
    offset: float
    """What was to be added for the wall clock's time."""
    trusted: bool


class MachineClocks:
    """Reads them. What seldom changes is seldom asked: each row of a listing bears dates."""

    def __init__(self) -> None:
        self._boot = BOOT.read_text().strip()
        self._kernel = ctypes.CDLL(None)
        self._source = ""
        self._asked = -inf
        self._ahead = 0.0

    def __call__(self) -> Reading:
        wall, since_boot = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
        was_set = abs(wall - since_boot - self._ahead) >= SET
        if was_set or since_boot - self._asked >= ASK_EVERY:
            self._ahead, self._asked = wall - since_boot, since_boot
            self._source = self._ask() if EARLIEST <= wall <= LATEST else ""
        return Reading(self._boot, since_boot, wall, self._source)

    def _ask(self) -> str:
        # Its struct is 208 bytes at most; all zero it asks and sets nothing.
        if self._kernel.adjtimex(ctypes.create_string_buffer(512)) not in (-1, _UNSYNCHRONISED):
            return "network"
        try:
            return "hardware clock" if HARDWARE_CLOCK.read_text().strip() == "1" else ""
        except OSError:
            return ""


def lived_by(base: Base | None, seen: Reading) -> float:
    """Return where lived time goes on; without a base it begins with the wall clock's."""
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

    def __init__(self, base: Base | None, look: Callable[[], Reading]) -> None:
        self._look = look
        seen = look()
        self._begun, self._since_boot = lived_by(base, seen), seen.since_boot
        self._offset = 0.0 if base is None else base.offset
        """What is to be added for the date."""
        self._told: dict[str, float] = {}
        """The same by whoever else told the time since the boot."""
        self._kept: float | None = None
        """Time since boot when it was last written down."""
        self._follow(seen)

    def now(self) -> float:
        """Return lived time in seconds, however the wall clock was set meanwhile."""
        return self._lived(self._look())

    def date(self, lived: float) -> float:
        """Return that moment in Unix time: right once somebody is trusted who knows the time."""
        self._follow(self._look())
        return lived + self._offset

    def tell(self, source: str, unix: float) -> None:
        """Note that `source`, one of RANKS, says that it is `unix` now."""
        if not EARLIEST <= unix <= LATEST:
            return
        seen = self._look()
        offset = unix - self._lived(seen)
        if abs(offset - self._told.get(source, -inf)) >= NEWS:
            self._told[source] = offset
            self._follow(seen)

    def base(self) -> Base:
        """Return what is to be written down now; `kept` is told once it is on disk."""
        seen = self._look()
        self._follow(seen)
        trusted = bool(self._source(seen))
        return Base(seen.boot, seen.since_boot, self._lived(seen), self._offset, trusted)

    def due(self) -> Base | None:
        """Return what should be written down anew; None where that has time."""
        base = self.base()
        if self._kept is not None and base.since_boot - self._kept < KEEP_EVERY:
            return None
        return base

    def kept(self, base: Base) -> None:
        """Note that it is on disk."""
        self._kept = base.since_boot

    def source(self) -> str:
        """Return from whom dates are; empty where nobody is trusted."""
        return self._source(self._look())

    def better(self) -> TimeTold | None:
        """Return the time where the system's clock, which nobody sets, is `FAR` from it."""
        seen = self._look()
        source = self._source(seen)
        if seen.source or not source:
            return None
        unix = self._lived(seen) + self._told[source]
        if abs(unix - seen.wall) < FAR:
            return None
        return TimeTold(source, seen.boot, seen.since_boot, unix)

    def _lived(self, seen: Reading) -> float:
        return self._begun + (seen.since_boot - self._since_boot)

    def _source(self, seen: Reading) -> str:
        return seen.source or self._trusted()

    def _trusted(self) -> str:
        """Return the best source that as many of the others confirm as contradict; empty without
        one."""
        for who in filter(self._told.__contains__, RANKS):
            others = [offset for each, offset in self._told.items() if each != who]
            wrong = sum(abs(offset - self._told[who]) >= CONTRADICTS for offset in others)
            if wrong * 2 <= len(others):
                return who
        return ""

    def _follow(self, seen: Reading) -> None:
        source = self._source(seen)
        offset = seen.wall - self._lived(seen)
        if not source:
            # Contradicted, and still closer than a clock that nobody has set.
            source = next(filter(self._told.__contains__, RANKS), "")
        if not seen.source and source:
            offset = self._told[source]
        if abs(offset - self._offset) >= SET:
            log.warning(
                "dates move by %+.0f s, as %s; nothing expires by that",
                offset - self._offset,
                f"the {source} tells the time" if source in self._told else "the clock was set",
            )
            self._offset = offset
