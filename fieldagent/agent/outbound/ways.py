"""Over which neighbour the hub is reached, and what we say of our own way there. Pure.

Who brings to the hub what neighbours ask for says so; who hears that is one transmission further
away, and says that. What is for the hub goes to the neighbour whose way costs least, spares a
battery that is nearly empty, and is shortest. A way that nobody renews ends, and its age goes
along, so that none lives in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from math import inf

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.envelope import NO_WAY, Way

LIVES = 2100.0
"""Seconds for which a way is good after the hub's neighbour told it."""
SAYS_EVERY = 600.0
"""Seconds after which ours is told by itself, where it rides with nothing."""
SAYS_AGAIN = 120.0
"""Seconds after which it rides along again."""


class KnownWay(NamedTuple):
    """Of a neighbour, since when by our clock; the rest is as in `wire.envelope.Way`."""

    hops: int
    since: float
    cost: int
    low: bool


class Ways:
    """`brings` says what it costs us to bring something to the hub, in credits: None where we do
    not. `low`: our battery is nearly empty. `hops` is how many transmissions bring an item anywhere
    at most. `clock` is lived time."""

    def __init__(
        self,
        brings: Callable[[], int | None],
        low: Callable[[], bool],
        clock: Callable[[], float],
        *,
        hops: int,
    ) -> None:
        self._brings = brings
        self._low = low
        self._clock = clock
        self._hops = hops
        self._heard: dict[int, KnownWay] = {}
        self._said: int | None = None
        """The hops that we said last."""
        self._said_at = -inf

    def note(self, station: int, way: Way) -> bool:
        """Note the way that a station says it has; return whether it is the first that has one."""
        before = self.next_hop()
        self._heard.pop(station, None)
        if way.hops < NO_WAY:
            since = self._clock() - 60 * way.minutes
            self._heard[station] = KnownWay(way.hops, since, way.cost, way.low)
        return before is None and self.next_hop() is not None

    def brings(self) -> bool:
        """Return whether we bring to the hub what we are asked to."""
        return self._brings() is not None

    def known(self) -> dict[int, KnownWay]:
        """Return the ways that stations have told and that are not too old, by station."""
        oldest = self._clock() - LIVES
        self._heard = {n: each for n, each in self._heard.items() if each.since > oldest}
        return self._heard

    def next_hop(self, but: Collection[int] = ()) -> int | None:
        """Return the neighbour that is asked: not one of those, unless there is no other."""
        near = [number for number, each in self.known().items() if each.hops + 1 <= self._hops]
        candidates = [number for number in near if number not in but] or near
        return min(candidates, key=self._worth, default=None)

    def _worth(self, number: int) -> tuple[int, bool, int, float]:
        each = self._heard[number]
        return each.cost, each.low, each.hops, -each.since

    def ours(self) -> Way | None:
        """Return what is known of ours, but for our own battery; None without one."""
        cost = self._brings()
        if cost is not None:
            return Way(0, 0, cost)
        best = self.next_hop()
        if best is None or self._heard[best].hops + 2 > self._hops:
            return None
        each = self._heard[best]
        return Way(each.hops + 1, int((self._clock() - each.since) / 60), each.cost, each.low)

    def to_say(self, *, beside: bool) -> Way | None:
        """Return our way where it is to be said: by itself when it is another than what was said,
        or was not said for long; `beside` something else sooner. None where it is not."""
        ours = self.ours()
        since = self._clock() - self._said_at
        if (None if ours is None else ours.hops) == self._said:
            every = SAYS_AGAIN if beside else SAYS_EVERY
            return self._told(ours) if ours is not None and since >= every else None
        return Way(NO_WAY) if ours is None else self._told(ours)

    def _told(self, ours: Way) -> Way:
        return replace(ours, low=ours.low or self._low())

    def greet(self) -> None:
        """Say our way soon to somebody who is there and has not heard it."""
        self._said_at = -inf

    def said(self, way: Way) -> None:
        """Note which way this kit has told its neighbours."""
        self._said, self._said_at = None if way.hops == NO_WAY else way.hops, self._clock()
