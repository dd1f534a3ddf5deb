"""Which positions are worth a Package: by time, by distance, oftener in motion. Pure.

A position that is not posted costs nothing; one that is posted replaces, by its collapseKey, the
one that still waits. Time is the satellites': the gateway may not know it.
"""

from __future__ import annotations

from dataclasses import field, replace

from fieldagent.package import great_circle
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.gpsd import Fix


@dataclass(frozen=True, slots=True)
class Policy:
    interval: float = 1800.0
    """Seconds between two positions at rest."""
    moving_interval: float = 300.0
    distance: float = 500.0
    """Metres from the last position that make another one due, but not before `shortest`."""
    shortest: float = 30.0
    satellite_factor: float = 4.0
    """How many times all of the above are where only satellite is up."""
    moving_from: float = 1.0
    """m/s; a receiver at rest tells up to about half of that, which is where motion ends."""
    steady: float = 60.0
    """Seconds for which the speed must say so: neither noise nor most red lights count."""

    def at(self, interval: float) -> Policy:
        """Return the same with another interval, and all else in proportion."""
        factor = interval / self.interval
        return replace(
            self,
            interval=interval,
            moving_interval=self.moving_interval * factor,
            distance=self.distance * factor,
        )


@dataclass(slots=True)
class Track:
    """Is shown every fix, and tells whether the newest is due."""

    policy: Policy = field(default_factory=Policy)
    _newest: Fix | None = None
    _posted: Fix | None = None
    _moving: bool = False
    """At rest until shown otherwise: a first fix is often wrong about its speed."""
    _moving_when_posted: bool = False
    _otherwise_since: float | None = None
    """Since when the speed has contradicted `_moving`; Unix seconds."""

    def see(self, fix: Fix) -> None:
        """Take the newest fix. Motion begins or ends once the speed has said so for `policy.steady`
        seconds."""
        self._newest = fix
        if self._looks_moving(fix) is self._moving:
            self._otherwise_since = None
        elif self._otherwise_since is None:
            self._otherwise_since = fix.time
        elif abs(fix.time - self._otherwise_since) >= self.policy.steady:
            self._moving, self._otherwise_since = not self._moving, None

    def due(self, *, costly: bool) -> bool:
        """Return whether the newest position is to be posted. `costly`: only satellite is up. What
        is due then is due without, too."""
        fix, last, policy = self._newest, self._posted, self.policy
        if fix is None or last is None:
            return fix is not None
        factor = policy.satellite_factor if costly else 1.0
        # A receiver that has set its clock back has not gone back in time.
        passed = abs(fix.time - last.time)
        interval = policy.moving_interval if self._moving else policy.interval
        far = distance(last, fix) >= policy.distance * factor
        # Setting out, and where one came to rest, are worth knowing before the interval is over.
        turned = self._moving is not self._moving_when_posted
        soon = passed >= policy.shortest * factor
        return passed >= interval * factor or ((far or turned) and soon)

    def next_at(self, *, costly: bool) -> float | None:
        """Return the Unix time at which the next is due at the latest, if all stays as it is; None
        before the first."""
        if self._posted is None:
            return None
        policy = self.policy
        interval = policy.moving_interval if self._moving else policy.interval
        return self._posted.time + interval * (policy.satellite_factor if costly else 1.0)

    def is_moving(self) -> bool:
        """Return whether it moves, as the speed has said for `policy.steady` seconds."""
        return self._moving

    def posted(self) -> None:
        """Note that the newest is on its way."""
        self._posted, self._moving_when_posted = self._newest, self._moving

    def _looks_moving(self, fix: Fix) -> bool:
        if fix.speed is None:
            return self._moving
        # Lower where there is motion already: a slow walk must not turn into rest and back.
        threshold = self.policy.moving_from / (2 if self._moving else 1)
        return fix.speed >= threshold


def distance(a: Fix, b: Fix) -> float:
    """Return the metres along a great circle."""
    return great_circle.distance(a.latitude, a.longitude, b.latitude, b.longitude)
