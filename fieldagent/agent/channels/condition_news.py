"""Decides when a kit reports its condition to the hub. The kit reports once over each new link,
then at most once an hour after a change, and at least every 12 hours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from math import inf

import trio

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.kit_condition import KitCondition

log = logging.getLogger(__name__)

REPORT_INTERVAL_MIN_S = 3_600.0
"""Minimum seconds between two reports over one link; a note takes about 100 bytes."""
REPORT_INTERVAL_MAX_S = 43_200.0
"""Seconds after which a report is sent even without a change, because half of the hours in the last
report are then out of date."""
DISK, DEGREES, MILLIVOLTS, CLOCK, CREDITS, BARS = 5, 10, 250, 30, 10, 2
"""Smallest changes that are reported: in percent (disk), degrees Celsius, mV, seconds (clock),
credits and signal bars."""


@dataclass(slots=True)
class ConditionNews:
    """State of the reports over one link. `read_condition` returns the kit's current condition."""

    read_condition: Callable[[], KitCondition]
    last_reported: KitCondition | None = field(default=None)
    """Condition that was last reported over this link."""
    reported_at: float = -inf
    looked_at: float = -inf
    """Time of the last check on trio's clock. `reported_at` is the time of the last report."""

    def begin(self) -> None:
        """Start again for a new link. The condition is reported once over each link."""
        self.last_reported, self.looked_at = None, -inf

    def compute_pause(self) -> float:
        """Return the seconds until the next check."""
        return max(0.0, self.looked_at + REPORT_INTERVAL_MIN_S - trio.current_time())

    def encode_due_note(self) -> bytes | None:
        """Return a note with the kit's condition for the hub, or None if no report is due. An error
        is only logged, because it must not end the link, which an SOS may need.
        """
        now = trio.current_time()
        if now < self.looked_at + REPORT_INTERVAL_MIN_S:
            return None
        self.looked_at = now
        try:
            current = self.read_condition()
            note = current.encode()
        except Exception:
            log.exception("the state of this kit cannot be sent, trying again in an hour")
            return None
        is_old = self.last_reported is None or now >= self.reported_at + REPORT_INTERVAL_MAX_S
        if (
            self.last_reported is not None
            and not is_old
            and not is_changed(self.last_reported, current)
        ):
            return None
        self.last_reported, self.reported_at = current, now
        return note


def is_changed(previous: KitCondition, condition: KitCondition) -> bool:
    """Return True if the change is large enough for a report."""
    before, other = previous.status, condition.status
    return (
        (previous.system, previous.cause, previous.starts)
        != (condition.system, condition.cause, condition.starts)
        or previous.throttled != condition.throttled
        or (before.clock, before.faults, before.trouble)
        != (other.clock, other.faults, other.trouble)
        or _is_change_of(before.disk_used, other.disk_used, DISK)
        or _is_change_of(before.degrees, other.degrees, DEGREES)
        or _is_change_of(before.millivolts, other.millivolts, MILLIVOLTS)
        or _is_change_of(previous.clock, condition.clock, CLOCK)
        or _is_change_of(before.credits_left, other.credits_left, CREDITS)
        or (before.credits_left == 0) != (other.credits_left == 0)
        or _is_signal_changed(previous.signals or {}, condition.signals or {})
    )


def _is_change_of(first: int | None, second: int | None, minimum: int) -> bool:
    if first is None or second is None:
        return first is not second
    return abs(first - second) >= minimum


def _is_signal_changed(
    previous: Mapping[str, Sequence[int | None]], condition: Mapping[str, Sequence[int | None]]
) -> bool:
    """Return True if the signals of the hour that has just ended differ from those that the last
    report contained for it.
    """
    if previous.keys() != condition.keys():
        return True
    return any(_is_change_of(previous[name][-1], condition[name][-2], BARS) for name in condition)
