"""When a Package is likely to be delivered, on a channel of a kit or by the hub to a kit, by how
long those before it took. Pure.

What ended otherwise (withdrawn because another channel was quicker, replaced, expired) and what
waits still has only shown that it takes longer than that: it counts as under way up to then, and
not after (Kaplan and Meier, Journal of the American Statistical Association 53, 1958). So a channel
that is silent since noon is not praised for its morning. What has no precedent is not foretold.
"""

from __future__ import annotations

from collections.abc import Sequence

from fieldagent.system.lazy_named_tuple import NamedTuple

LEAST = 5
"""Packages below which nothing is said."""
PAST = 100
"""Packages of a channel that are looked for in the journal."""
MOST = 50
"""The newest of them that are looked at."""
NEAR = 3 * 3600.0
"""Seconds by which a time of day is another: satellites, people and hubs have their hours."""
LEAST_NEAR = 10
"""Packages of that time of day below which those of all day are looked at."""
HALF, NEARLY_ALL = 0.5, 0.9
_DAY = 86_400.0
_ROUNDING = 1e-9


class PastLeg(NamedTuple):
    """How a Package went on one channel; times are Unix time."""

    begun: float
    """When it might: a cheaper channel had a head start."""
    ended: float | None
    """None while it waits."""
    delivered: bool


Steps = Sequence[tuple[float, float]]
"""After how many seconds which share is delivered, rising; none where nothing was."""


class Forecast(NamedTuple):
    of: int
    """Packages whose past it is taken from."""
    half: float | None
    """Seconds until half of such are delivered, from when it may begin there; None where fewer
    were."""
    most: float | None
    """The same of nine of ten."""
    share: float
    """Of 1: how many are delivered at last."""
    last: float
    """Seconds after which that is so: nobody knows what comes later."""


class Kept(NamedTuple):
    """How good forecasts were."""

    of: int
    """Packages of which it was said within which time nine of ten are delivered, and that had that
    time."""
    within: int
    """Those that were."""


def forecast(legs: Sequence[PastLeg], now: float) -> Forecast | None:
    """Return what those legs of one channel say of a Package that may begin there at `now` (Unix
    time, as theirs); None where they are too few, or none of them was delivered."""
    chosen = _chosen(legs, now)
    steps = _shares(chosen, now)
    if len(chosen) < LEAST or not steps:
        return None
    last, share = steps[-1]
    return Forecast(len(chosen), _when(steps, HALF), _when(steps, NEARLY_ALL), share, last)


def steps_of(legs: Sequence[PastLeg], now: float) -> Steps | None:
    """Return what those legs of one channel show at `now`; None where they are too few."""
    chosen = _chosen(legs, now)
    return None if len(chosen) < LEAST else _shares(chosen, now)


def share_within(steps: Steps, seconds: float) -> float:
    """Return which share, 0 to 1, is delivered within so many seconds."""
    return max((share for after, share in steps if after <= seconds), default=0.0)


def kept(legs: Sequence[PastLeg], now: float) -> Kept:
    """Ask of each leg what was known as it began, and how it ended."""
    of = within = 0
    for leg in legs:
        said = forecast([each for each in legs if each.begun < leg.begun], leg.begun)
        if said is None or said.most is None:
            continue
        seconds, delivered = _taken(leg, now)
        if seconds > said.most or delivered:
            of += 1
            within += delivered and seconds <= said.most
    return Kept(of, within)


def _chosen(legs: Sequence[PastLeg], now: float) -> Sequence[PastLeg]:
    """Return the newest, of this time of day where those are enough."""
    known = sorted((leg for leg in legs if leg.begun <= now), key=lambda leg: -leg.begun)
    near = [leg for leg in known if _apart(leg.begun, now) <= NEAR]
    return (near if len(near) >= LEAST_NEAR else known)[:MOST]


def _apart(one: float, other: float) -> float:
    """Return how far two times of day are apart, in seconds."""
    apart = (one - other) % _DAY
    return min(apart, _DAY - apart)


def _taken(leg: PastLeg, now: float) -> tuple[float, bool]:
    """Return how long it was under way by `now`, and whether it was delivered then."""
    if leg.ended is None or leg.ended > now:
        return now - leg.begun, False
    return leg.ended - leg.begun, leg.delivered


def _shares(legs: Sequence[PastLeg], now: float) -> list[tuple[float, float]]:
    """Return after how many seconds which share of such is delivered, rising."""
    # Of the same time, what was delivered then comes first.
    ends = sorted((seconds, not done) for seconds, done in (_taken(leg, now) for leg in legs))
    steps, waiting = [], 1.0
    for place, (seconds, censored) in enumerate(ends):
        if not censored:
            waiting *= 1 - 1 / (len(ends) - place)
            steps.append((seconds, 1 - waiting))
    return steps


def _when(steps: Sequence[tuple[float, float]], share: float) -> float | None:
    return next((seconds for seconds, reached in steps if reached >= share - _ROUNDING), None)
