"""For how long a radio may be on the air, as most bands allow it a share of each hour."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping

import trio

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.seldom import Seldom

log = logging.getLogger(__name__)

HOUR = 3600.0
_MINUTE = 60.0
URGENT_SHARE = 2.0
"""An SOS may have so many times the share."""
UNSAVED = 0.05
"""The share of what an hour allows that may be on the air before it is written down: twenty writes
an hour at the most. A start counts as much, as it may have been lost."""


class Dwell(NamedTuple):
    """How long one frequency may be used without a pause."""

    seconds: float
    within: float
    """Seconds."""


class AirLimit(NamedTuple):
    """What the law allows at a frequency."""

    percent: float = 100.0
    """Of any hour; 100 is no limit."""
    dwell: Dwell | None = None


class AirTime:
    """What a radio uses of it, counted in whole minutes, so that an hour takes sixty numbers.
    `clock` is lived time; `known` is what was written down by `unsaved`."""

    def __init__(
        self, clock: Callable[[], float] = trio.current_time, known: Mapping[int, float] = {}
    ) -> None:
        self.limit = AirLimit()
        self.grown = trio.Event()
        """Set when it is to be saved, and then replaced."""
        self._clock = clock
        self._minutes = {**known}
        self._may_lack = bool(known)
        self._changed: set[int] = set()
        self._unsaved = 0.0
        self._lately: deque[tuple[float, float]] = deque()
        self._beyond = Seldom(clock)

    def narrow(self, limit: AirLimit) -> None:
        """Narrow the limit: no more than the lesser of both shares, and the dwell time of `limit`
        where it has one."""
        percent = min(self.limit.percent, limit.percent)
        self.limit = AirLimit(percent, limit.dwell or self.limit.dwell)
        if self._may_lack and self.is_limited():
            self._may_lack = False
            self.note(UNSAVED * self._allowed())

    def is_limited(self) -> bool:
        """Return whether the law of the band limits air-time at all."""
        return self.limit.percent < 100

    def spent(self) -> float:
        """Return the seconds of the last hour, and of the minute in which it began."""
        oldest = int((self._clock() - HOUR) // _MINUTE)
        self._minutes = {at: took for at, took in self._minutes.items() if at >= oldest}
        return sum(self._minutes.values())

    def left(self) -> float:
        """Return the seconds that remain of this hour."""
        return max(0.0, self._allowed() - self.spent())

    def allows(self, seconds: float, *, urgent: bool) -> bool:
        """Return whether a packet may go that takes so long. Says so where it is an SOS that goes
        beyond what any other may."""
        times = URGENT_SHARE if urgent else 1.0
        dwell = self.limit.dwell
        if dwell is not None and self._within(dwell) + seconds > dwell.seconds * times:
            return False
        if not self.is_limited():
            return True
        spent = self.spent() + seconds
        if self._allowed() < spent <= self._allowed() * times and self._beyond.note():
            log.warning("an SOS takes more air-time than this hour has: %s", self.in_words())
        return spent <= self._allowed() * times

    def note(self, seconds: float) -> None:
        """Note that the radio was on the air for so long; negative where it was not, after all."""
        now = self._clock()
        minute = int(now // _MINUTE)
        self._minutes[minute] = self._minutes.get(minute, 0.0) + seconds
        if self.limit.dwell is not None:
            self._lately.append((now, seconds))
        self._changed.add(minute)
        self._unsaved += seconds
        if self.is_to_be_saved():
            self.grown.set()
            self.grown = trio.Event()

    def is_to_be_saved(self) -> bool:
        """Return whether so much is not written down that it is worth a write."""
        return self.is_limited() and self._unsaved >= UNSAVED * self._allowed()

    def unsaved(self) -> dict[int, float]:
        """Return by minute what is not written down; from now on it counts as written."""
        minutes = {minute: self._minutes.get(minute, 0.0) for minute in self._changed}
        self._changed, self._unsaved = set(), 0.0
        return minutes

    def in_words(self) -> str:
        """Return what this hour has taken of what it may, for people."""
        allowed = f"{self._allowed():.0f} s ({self.limit.percent:g} %)"
        return f"{self.spent():.0f} s on the air, of {allowed}"

    def notice(self) -> str:
        """Return a notice for people; empty where nothing is beyond what the hour has."""
        if not self.is_limited() or self.spent() <= self._allowed():
            return ""
        return (
            f"an SOS has taken more air-time than this hour has: {self.in_words()}; all else waits"
        )

    def _allowed(self) -> float:
        return self.limit.percent / 100 * HOUR

    def _within(self, dwell: Dwell) -> float:
        oldest = self._clock() - dwell.within
        while self._lately and self._lately[0][0] <= oldest:
            self._lately.popleft()
        return sum(took for _, took in self._lately)
