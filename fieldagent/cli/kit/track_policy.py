"""Decides which positions are posted, by time and distance. In motion, more positions are posted.
Pure.

A position that is not posted costs nothing. A posted position replaces a waiting position, by its
collapseKey. Times are from the satellites, because the gateway may not know the time.
"""

from __future__ import annotations

from dataclasses import field, replace

from fieldagent.package import coordinates
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.gpsd import Fix


@dataclass(frozen=True, slots=True)
class Policy:
    interval: float = 1800.0
    """Seconds between two positions at rest."""
    moving_interval: float = 300.0
    distance: float = 500.0
    """Distance in metres from the last position after which the next position is due, but not
    before `shortest`."""
    shortest: float = 30.0
    satellite_factor: float = 4.0
    """Factor for the times and the distance of this policy if only satellite is up."""
    moving_from: float = 1.0
    """Speed in m/s from which the kit counts as moving. Motion ends below half of this speed,
    because a receiver at rest may report about half of it."""
    steady: float = 60.0
    """Seconds for which the speed must be above or below the limit, so that noise and most red
    lights do not count."""

    def with_interval(self, interval: float) -> Policy:
        """Return the policy for another interval, with `moving_interval` and `distance` in
        proportion.
        """
        factor = interval / self.interval
        return replace(
            self,
            interval=interval,
            moving_interval=self.moving_interval * factor,
            distance=self.distance * factor,
        )


@dataclass(slots=True)
class Track:
    """Collects all fixes, and decides whether the newest position is due."""

    policy: Policy = field(default_factory=Policy)
    _newest: Fix | None = None
    _posted: Fix | None = None
    _moving: bool = False
    """True if the kit is moving. It is False at first, because a first fix often has a wrong
    speed."""
    _moving_when_posted: bool = False
    _contradicted_since: float | None = None
    """Unix time since which the speed contradicts `_moving`."""

    def add_fix(self, fix: Fix) -> None:
        """Process the newest fix. Motion begins or ends after the speed has been on the other side
        of the limit for `policy.steady` seconds.
        """
        self._newest = fix
        if self._is_moving(fix) is self._moving:
            self._contradicted_since = None
        elif self._contradicted_since is None:
            self._contradicted_since = fix.time
        elif abs(fix.time - self._contradicted_since) >= self.policy.steady:
            self._moving, self._contradicted_since = not self._moving, None

    def is_due(self, *, costly: bool) -> bool:
        """Return True if the newest position must be posted. `costly` is True if only satellite is
        up. A position that is due if `costly` is True is also due if it is False.
        """
        fix, last, policy = self._newest, self._posted, self.policy
        if fix is None or last is None:
            return fix is not None
        factor = policy.satellite_factor if costly else 1.0
        # Use the absolute value, because a receiver may set its clock back.
        seconds_passed = abs(fix.time - last.time)
        interval = policy.moving_interval if self._moving else policy.interval
        far = compute_distance(last, fix) >= policy.distance * factor
        # People at the hub should see a departure or an arrival soon, so do not wait for the
        # interval.
        turned = self._moving is not self._moving_when_posted
        soon = seconds_passed >= policy.shortest * factor
        return seconds_passed >= interval * factor or ((far or turned) and soon)

    def compute_next(self, *, costly: bool) -> float | None:
        """Return the latest Unix time at which the next position is due if nothing changes. Return
        None before the first position.
        """
        if self._posted is None:
            return None
        policy = self.policy
        interval = policy.moving_interval if self._moving else policy.interval
        return self._posted.time + interval * (policy.satellite_factor if costly else 1.0)

    def is_moving(self) -> bool:
        """Return True if the kit is moving, by the speed during `policy.steady` seconds."""
        return self._moving

    def mark_posted(self) -> None:
        """Record that the newest position was posted."""
        self._posted, self._moving_when_posted = self._newest, self._moving

    def _is_moving(self, fix: Fix) -> bool:
        if fix.speed is None:
            return self._moving
        # Hysteresis: the lower threshold during motion keeps the state during a slow walk.
        threshold = self.policy.moving_from / (2 if self._moving else 1)
        return fix.speed >= threshold


def compute_distance(a: Fix, b: Fix) -> float:
    """Return the distance in metres along a great circle."""
    return coordinates.compute_distance(a.latitude, a.longitude, b.latitude, b.longitude)
