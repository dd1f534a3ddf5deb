"""Limits a radio's time on air, because most bands allow only a share of each hour."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping

import trio

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import EventRate

log = logging.getLogger(__name__)

HOUR = 3600.0
_MINUTE = 60.0
URGENT_SHARE = 2.0
"""Factor by which an SOS of this kit may exceed the allowance for other packets."""
OTHERS_SHARE = 1.5
"""Factor by which an SOS of other stations may exceed the allowance. It is lower, because any
person with a radio can send such an SOS."""
UNSAVED_SHARE_MAX = 0.05
"""Share of the hour's allowance after whose use the counts are stored, so that there are at most
twenty writes an hour. After a start, this share is counted as used, because the last use may not
have been stored."""


class Dwell(NamedTuple):
    """Limit on the use of one frequency: at most `seconds` on the air within each period."""

    seconds: float
    period_s: float
    """Length of the period, in seconds."""


class AirLimit(NamedTuple):
    """Legal limit at a frequency: a share of each hour in percent, and a dwell time."""

    percent: float = 100.0
    """Share of any hour in percent; 100 means no limit."""
    dwell: Dwell | None = None


class AirTime:
    """Counter of the air-time that a radio uses in each minute, and the legal limit of this use.
    `clock` returns elapsed time in seconds. `seconds_by_minute` contains the use that an earlier
    run stored (see `collect_unsaved_minutes`).
    """

    def __init__(
        self,
        clock: Callable[[], float] = trio.current_time,
        seconds_by_minute: Mapping[int, float] = {},
    ) -> None:
        self.limit = AirLimit()
        self.grown = trio.Event()
        """Event that is set when the counts should be stored. A new event then replaces it."""
        self._clock = clock
        self._minutes = {**seconds_by_minute}
        self._may_lack = bool(seconds_by_minute)
        self._changed_minutes: set[int] = set()
        self._unsaved = 0.0
        self._lately: deque[tuple[float, float]] = deque()
        self._beyond = EventRate(clock)

    def narrow(self, limit: AirLimit) -> None:
        """Narrow the present limit by `limit`: use the lower of both shares, and the dwell time of
        `limit` if it has one.
        """
        percent = min(self.limit.percent, limit.percent)
        self.limit = AirLimit(percent, limit.dwell or self.limit.dwell)
        if self._may_lack and self.is_limited():
            self._may_lack = False
            self.record_use(UNSAVED_SHARE_MAX * self._get_allowance())

    def is_limited(self) -> bool:
        """Return True if there is a limit on the air-time per hour."""
        return self.limit.percent < 100

    def compute_used(self) -> float:
        """Return the seconds used in the last hour. The minute in which the hour began counts
        completely.
        """
        oldest = int((self._clock() - HOUR) // _MINUTE)
        self._minutes = {at: seconds for at, seconds in self._minutes.items() if at >= oldest}
        return sum(self._minutes.values())

    def compute_remaining(self) -> float:
        """Return the seconds of the hour's allowance that are not used yet. Never negative."""
        return max(0.0, self._get_allowance() - self.compute_used())

    def can_send(self, seconds: float, *, urgent: bool) -> bool:
        """Return True if the limits allow a packet that takes `seconds` on the air. If `urgent` (an
        SOS), both limits are multiplied by URGENT_SHARE. Log a warning if an SOS exceeds the hour's
        allowance for other packets.
        """
        times = URGENT_SHARE if urgent else 1.0
        dwell = self.limit.dwell
        if dwell is not None and self._sum_within(dwell) + seconds > dwell.seconds * times:
            return False
        if not self.is_limited():
            return True
        used_seconds = self.compute_used() + seconds
        if (
            self._get_allowance() < used_seconds <= self._get_allowance() * times
            and self._beyond.count_event()
        ):
            log.warning("an SOS takes more air-time than this hour has: %s", self.describe_usage())
        return used_seconds <= self._get_allowance() * times

    def has_time_for_others(self) -> bool:
        """Return True if an SOS of others may still exceed the limit for other packets."""
        return not self.is_limited() or self.compute_used() < self._get_allowance() * OTHERS_SHARE

    def record_use(self, seconds: float) -> None:
        """Record that the radio was on the air for `seconds`. A negative number cancels an earlier
        record.
        """
        now = self._clock()
        minute = int(now // _MINUTE)
        self._minutes[minute] = self._minutes.get(minute, 0.0) + seconds
        if self.limit.dwell is not None:
            self._lately.append((now, seconds))
        self._changed_minutes.add(minute)
        self._unsaved += seconds
        if self.is_to_be_saved():
            self.grown.set()
            self.grown = trio.Event()

    def is_to_be_saved(self) -> bool:
        """Return True if there is enough unsaved air-time to justify a write."""
        return self.is_limited() and self._unsaved >= UNSAVED_SHARE_MAX * self._get_allowance()

    def collect_unsaved_minutes(self) -> dict[int, float]:
        """Return the unsaved seconds by minute, and mark them as saved."""
        minutes = {minute: self._minutes.get(minute, 0.0) for minute in self._changed_minutes}
        self._changed_minutes, self._unsaved = set(), 0.0
        return minutes

    def describe_usage(self) -> str:
        """Return the used and the allowed seconds of this hour, for people."""
        allowed = f"{self._get_allowance():.0f} s ({self.limit.percent:g} %)"
        return f"{self.compute_used():.0f} s on the air, of {allowed}"

    def find_notice(self) -> str:
        """Return a notice for people if an SOS has exceeded the hour's limit, otherwise ''."""
        if not self.is_limited() or self.compute_used() <= self._get_allowance():
            return ""
        usage = self.describe_usage()
        return f"an SOS has taken more air-time than this hour has: {usage}; all other items wait"

    def _get_allowance(self) -> float:
        return self.limit.percent / 100 * HOUR

    def _sum_within(self, dwell: Dwell) -> float:
        oldest = self._clock() - dwell.period_s
        while self._lately and self._lately[0][0] <= oldest:
            self._lately.popleft()
        return sum(seconds for _, seconds in self._lately)
