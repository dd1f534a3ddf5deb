"""When a kit tells the hub by itself how it is: over each new link, then where something is another
than was told, once an hour at the most."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from math import inf

import trio

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.kit_condition import KitCondition

log = logging.getLogger(__name__)

EVERY = 3_600.0
"""Seconds at the least between two of them over one link: a note takes some 100 bytes."""
AT_LATEST = 43_200.0
"""Seconds after which half of the hours that were told are others."""
DISK, DEGREES, MILLIVOLTS, CLOCK, CREDITS, BARS = 5, 10, 250, 30, 10, 2
"""By less these may differ, in percent, Celsius, mV, seconds, credits and bars."""


@dataclass(slots=True)
class ConditionNews:
    """`look` finds how the kit is."""

    look: Callable[[], KitCondition]
    told: KitCondition | None = field(default=None)
    """Over this link."""
    told_at: float = -inf
    looked_at: float = -inf
    """By trio's clock, both."""

    def begin(self) -> None:
        """Begin with a new link: the hub is told again."""
        self.told, self.looked_at = None, -inf

    def pause(self) -> float:
        """Return the seconds until the next look."""
        return max(0.0, self.looked_at + EVERY - trio.current_time())

    def news(self) -> bytes | None:
        """Look, where it is time to; return the note for the hub, where there is something to tell.
        What fails in it ends no link, over which an SOS may have to go."""
        now = trio.current_time()
        if now < self.looked_at + EVERY:
            return None
        self.looked_at = now
        try:
            current = self.look()
            note = current.encode()
        except Exception:
            log.exception("how this kit is cannot be told, it is tried again in an hour")
            return None
        is_old = self.told is None or now >= self.told_at + AT_LATEST
        if self.told is not None and not is_old and not differs(self.told, current):
            return None
        self.told, self.told_at = current, now
        return note


def differs(previous: KitCondition, current: KitCondition) -> bool:
    """Return whether the hub should hear of it."""
    one, other = previous.status, current.status
    return (
        (previous.system, previous.cause, previous.starts)
        != (current.system, current.cause, current.starts)
        or previous.throttled != current.throttled
        or (one.clock, one.faults, one.trouble) != (other.clock, other.faults, other.trouble)
        or _apart(one.disk_used, other.disk_used, DISK)
        or _apart(one.degrees, other.degrees, DEGREES)
        or _apart(one.millivolts, other.millivolts, MILLIVOLTS)
        or _apart(previous.clock, current.clock, CLOCK)
        or _apart(one.credits_left, other.credits_left, CREDITS)
        or (one.credits_left == 0) != (other.credits_left == 0)
        or _heard_otherwise(previous.signals or {}, current.signals or {})
    )


def _apart(one: int | None, other: int | None, least: int) -> bool:
    if one is None or other is None:
        return one is not other
    return abs(one - other) >= least


def _heard_otherwise(
    previous: Mapping[str, Sequence[int | None]], current: Mapping[str, Sequence[int | None]]
) -> bool:
    """Return whether the hour that is whole now was another than the one that ran as it was
    told."""
    if previous.keys() != current.keys():
        return True
    return any(_apart(previous[name][-1], current[name][-2], BARS) for name in current)
