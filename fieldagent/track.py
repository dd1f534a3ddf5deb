"""Which positions are worth a Package: by time, by distance, oftener in motion. Pure.

A position that is not posted costs nothing; one that is posted replaces, by its collapseKey, the
one that still waits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fieldagent.wire.gpsd import Fix

EARTH = 6_371_000.0
"""Metres."""


@dataclass(frozen=True, slots=True)
class Policy:
    interval: float = 1800.0
    """Seconds between two positions at rest."""
    moving_interval: float = 300.0
    distance: float = 500.0
    """Metres from the last position that make another one due, but not before `shortest`."""
    shortest: float = 30.0
    moving_from: float = 1.0
    """m/s; a receiver at rest tells up to about half of that."""
    satellite_factor: float = 4.0
    """How many times all of these are where only satellite is up."""


@dataclass(slots=True)
class Track:
    """Tells of each fix whether it is due; `posted` is to be called once it is on its way."""

    policy: Policy = field(default_factory=Policy)
    _last: Fix | None = None
    _moving: bool = False

    def due(self, fix: Fix, *, costly: bool) -> bool:
        """`costly`: only satellite is up."""
        if self._last is None:
            return True
        policy = self.policy
        factor = policy.satellite_factor if costly else 1.0
        # A receiver that has set its clock back has not gone back in time.
        passed = abs(fix.time - self._last.time)
        moving = self._is_moving(fix)
        interval = policy.moving_interval if moving else policy.interval
        far = distance(self._last, fix) >= policy.distance * factor
        # Setting out, and where one came to rest, are worth knowing before the interval is over.
        turned = moving is not self._moving
        soon = passed >= policy.shortest * factor
        return passed >= interval * factor or ((far or turned) and soon)

    def posted(self, fix: Fix) -> None:
        self._last, self._moving = fix, self._is_moving(fix)

    def _is_moving(self, fix: Fix) -> bool:
        return fix.speed is not None and fix.speed >= self.policy.moving_from


def distance(a: Fix, b: Fix) -> float:
    """Metres along a great circle (haversine)."""
    low, high = math.radians(a.latitude), math.radians(b.latitude)
    across = math.radians(b.longitude - a.longitude)
    half = (
        math.sin((high - low) / 2) ** 2 + math.cos(low) * math.cos(high) * math.sin(across / 2) ** 2
    )
    return 2 * EARTH * math.asin(min(1.0, math.sqrt(half)))
