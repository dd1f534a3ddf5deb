"""Elapsed time, which is independent of changes of the wall clock.

The clock of a gateway without a clock battery shows 1970 until the network sets it, and a clock may
jump by years at any moment. Elapsed time is a number like Unix time that never jumps. Within a
boot, it follows CLOCK_BOOTTIME, which also counts sleep (clock_gettime(2)). After a boot, it
continues from the last stored value.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Callable
from math import inf
from pathlib import Path

from fieldagent.system.clock_bounds import EARLIEST_TIME, LATEST_TIME
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

log = logging.getLogger(__name__)

CLOCK_SET_FROM_S = 0.5
"""Smallest jump in seconds that means that the clock was set. A smaller change is a slow
correction."""
CLOCK_WARN_FROM_S = 60.0
"""Smallest jump in seconds that people should notice. At each start the clock jumps by a second or
two, because a clock chip has whole seconds."""
SAVE_INTERVAL_S = 60.0
"""Minimum seconds between two writes of the stored value."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
HARDWARE_CLOCK = Path("/sys/class/rtc/rtc0/hctosys")
"""File that contains 1 if the system took its time at boot from a clock with a battery."""
_UNSYNCHRONISED = 5
"""Result of adjtimex(2) until the clock is set by the network or a receiver."""
CLOCK_CACHE_S = 5.0
"""Seconds for which the kernel's state of the clock is cached. After a change of the clock, the
state is read again."""
CLOCK_ERROR_MAX_S = 30.0
"""Error of the system's clock in seconds from which the clock is corrected. Larger errors cause
problems for TLS and logs."""
CONTRADICTION_S = 3600.0
"""Difference of two sources, in seconds, from which at least one must be wrong."""
SOURCE_VARIATION_S = 2.0
"""Normal variation of a source in seconds, because the hub sends whole seconds."""
GPS = "GPS"
SOURCES_BY_RANK = (GPS, "satellite", "hub")
"""Sources of time other than the system, the best first. If the system's clock is not trusted,
dates follow the best source since the boot, and root's unit sets the clock by it
(`kit.system_clock`)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Values of the machine's clocks at one moment. `source` is the source of the wall clock's
    time, or '' if the wall clock is not trusted.
    """

    boot: str
    """Id of the boot, which is new after each boot."""
    since_boot: float
    wall_time: float
    source: str = ""

    @property
    def trusted(self) -> bool:
        """Return True if a reliable source has set the wall clock."""
        return bool(self.source)


class ReportedTime(NamedTuple):
    """A time from a source other than the system."""

    source: str
    boot: str
    since_boot: float
    """Seconds since the boot when the time was `unix`."""
    unix: float


class ClockBase(NamedTuple):
    """Stored state from which elapsed time continues."""

    boot: str
    since_boot: float
    elapsed: float
    offset: float
    """Seconds to add to elapsed time to get Unix time."""
    trusted: bool


class MachineClocks:
    """Reads the machine's clocks. Slow values are cached, because each row of a listing has
    dates.
    """

    def __init__(self) -> None:
        self._boot = BOOT.read_text().strip()
        self._kernel = ctypes.CDLL(None)
        self._source = ""
        self._asked_at = -inf
        self._ahead = 0.0

    def __call__(self) -> Reading:
        wall, since_boot = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
        was_set = abs(wall - since_boot - self._ahead) >= CLOCK_SET_FROM_S
        if was_set or since_boot - self._asked_at >= CLOCK_CACHE_S:
            self._ahead, self._asked_at = wall - since_boot, since_boot
            self._source = self._ask() if EARLIEST_TIME <= wall <= LATEST_TIME else ""
        return Reading(self._boot, since_boot, wall, self._source)

    def _ask(self) -> str:
        # The struct of adjtimex(2) has at most 208 bytes. With all bytes zero, the call only
        # queries.
        if self._kernel.adjtimex(ctypes.create_string_buffer(512)) not in (-1, _UNSYNCHRONISED):
            return "network"
        try:
            return "hardware clock" if HARDWARE_CLOCK.read_text().strip() == "1" else ""
        except OSError:
            return ""


def compute_elapsed_time(base: ClockBase | None, seen: Reading) -> float:
    """Return the elapsed time in seconds at the moment of `seen`. `base` is the last stored state.
    If it is None, elapsed time begins with the wall clock's time.
    """
    if base is None:
        return seen.wall_time
    if base.boot == seen.boot:
        return base.elapsed + max(0.0, seen.since_boot - base.since_boot)
    off = seen.wall_time - base.offset - base.elapsed
    if base.trusted and seen.trusted and off >= seen.since_boot:
        return base.elapsed + off
    # It is unknown how long the machine was off. Count too little rather than too much, so that
    # items live longer.
    return base.elapsed + seen.since_boot


class ElapsedTime:
    """Elapsed time of this program. `base` is the last stored state, and `read_clocks` reads the
    machine's clocks.
    """

    def __init__(self, base: ClockBase | None, read_clocks: Callable[[], Reading]) -> None:
        self._look = read_clocks
        clocks = read_clocks()
        self._started_at, self._since_boot = compute_elapsed_time(base, clocks), clocks.since_boot
        self._offset = 0.0 if base is None else base.offset
        """Seconds to add to elapsed time to get Unix time."""
        self._source_offsets: dict[str, float] = {}
        """Seconds to add to elapsed time to get the time of each other source, for the sources
        since the boot."""
        self._stored_at: float | None = None
        """Time of the last stored state, in seconds since the boot."""
        self._follow_clock(clocks)

    def now(self) -> float:
        """Return the elapsed time in seconds, independent of changes of the wall clock."""
        return self._read_elapsed(self._look())

    def date(self, elapsed_s: float) -> float:
        """Return an elapsed time as Unix time. The result is correct as soon as there is a trusted
        source.
        """
        self._follow_clock(self._look())
        return elapsed_s + self._offset

    def record_time(self, source: str, unix: float) -> None:
        """Record the Unix time that `source`, one of SOURCES_BY_RANK, reports now. A time that is
        not plausible is ignored.
        """
        if not EARLIEST_TIME <= unix <= LATEST_TIME:
            return
        clocks = self._look()
        offset = unix - self._read_elapsed(clocks)
        if abs(offset - self._source_offsets.get(source, -inf)) >= SOURCE_VARIATION_S:
            self._source_offsets[source] = offset
            self._follow_clock(clocks)

    def get_base(self) -> ClockBase:
        """Return the state to store now. The caller calls `mark_kept` when the state is on disk."""
        clocks = self._look()
        self._follow_clock(clocks)
        trusted = bool(self._source(clocks))
        return ClockBase(
            clocks.boot, clocks.since_boot, self._read_elapsed(clocks), self._offset, trusted
        )

    def get_due_base(self) -> ClockBase | None:
        """Return the state to store, or None if no write is due yet."""
        base = self.get_base()
        if self._stored_at is not None and base.since_boot - self._stored_at < SAVE_INTERVAL_S:
            return None
        return base

    def mark_kept(self, base: ClockBase) -> None:
        """Record that the state `base` is on disk. `get_due_base` returns the next state
        SAVE_INTERVAL_S seconds later.
        """
        self._stored_at = base.since_boot

    def source(self) -> str:
        """Return the source of dates, or '' if no source is trusted."""
        return self._source(self._look())

    def find_better_time(self) -> ReportedTime | None:
        """Return the correct time if the system's clock is not trusted and is wrong by at least
        `CLOCK_ERROR_MAX_S`, otherwise None.
        """
        clocks = self._look()
        source = self._source(clocks)
        if clocks.source or not source:
            return None
        unix = self._read_elapsed(clocks) + self._source_offsets[source]
        if abs(unix - clocks.wall_time) < CLOCK_ERROR_MAX_S:
            return None
        return ReportedTime(source, clocks.boot, clocks.since_boot, unix)

    def _read_elapsed(self, seen: Reading) -> float:
        return self._started_at + (seen.since_boot - self._since_boot)

    def _source(self, seen: Reading) -> str:
        return seen.source or self._find_trusted_source()

    def _find_trusted_source(self) -> str:
        """Return the first of SOURCES_BY_RANK that has reported a time, and that at most half of
        the other sources contradict by CONTRADICTION_S or more. Return '' if there is no such
        source.
        """
        for source in filter(self._source_offsets.__contains__, SOURCES_BY_RANK):
            others = [offset for each, offset in self._source_offsets.items() if each != source]
            wrong = sum(
                abs(offset - self._source_offsets[source]) >= CONTRADICTION_S for offset in others
            )
            if wrong * 2 <= len(others):
                return source
        return ""

    def _follow_clock(self, seen: Reading) -> None:
        source = self._source(seen)
        offset = seen.wall_time - self._read_elapsed(seen)
        if not source:
            # Use a contradicted source, which is still better than a clock that was never set.
            source = next(filter(self._source_offsets.__contains__, SOURCES_BY_RANK), "")
        if not seen.source and source:
            offset = self._source_offsets[source]
        if abs(offset - self._offset) >= CLOCK_SET_FROM_S:
            moved = abs(offset - self._offset)
            log.log(
                logging.WARNING if moved >= CLOCK_WARN_FROM_S else logging.INFO,
                "dates change by %+.0f s, because %s; nothing expires because of this",
                offset - self._offset,
                f"clock source: {source}"
                if source in self._source_offsets
                else "the clock was set",
            )
            self._offset = offset
