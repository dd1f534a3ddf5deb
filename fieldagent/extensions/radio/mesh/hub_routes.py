"""Chooses the neighbour through which we reach the hub, and decides when to announce our own route.
Pure.

A station that relays to the hub announces its route. A station that receives this announcement is
one transmission further away from the hub, and announces its own route. Items for the hub go to the
neighbour with the lowest cost. If the costs are equal, neighbours with a good battery come first,
then shorter routes. A route that is not renewed expires. Each announcement contains the route's
age, so that stations in a loop cannot keep a dead route alive.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from math import inf

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.envelope import NO_ROUTE, RouteToHub

ROUTE_LIFETIME_S = 2100.0
"""Seconds for which a route is valid after the station next to the hub announced it."""
ANNOUNCE_AFTER_S = 600.0
"""Seconds after which our route is announced in its own packet, if the route could not ride with
other entries."""
REPEAT_AFTER_S = 120.0
"""Seconds after an announcement until our route is sent with other entries again."""


class KnownRoute(NamedTuple):
    """A route to the hub that a neighbour announced. `since` is the local time of the announcement.
    The other fields are as in `wire.envelope.RouteToHub`.
    """

    hops: int
    since: float
    cost: int
    is_battery_low: bool


class HubRoutes:
    """Known routes to the hub. `compute_relay_cost` returns the credits that it costs us to relay
    to the hub, or None if we do not relay. `is_battery_low` returns True if our battery is nearly
    empty. `hops` is the maximum number of transmissions to reach any station. `clock` is elapsed
    time.
    """

    def __init__(
        self,
        compute_relay_cost: Callable[[], int | None],
        is_battery_low: Callable[[], bool],
        clock: Callable[[], float],
        *,
        hops: int,
    ) -> None:
        self._compute_relay_cost = compute_relay_cost
        self._is_battery_low = is_battery_low
        self._clock = clock
        self._hops = hops
        self._heard_routes: dict[int, KnownRoute] = {}
        self._announced_hops: int | None = None
        """Number of hops in our last announcement."""
        self._announced_at = -inf

    def record_route(self, station: int, route: RouteToHub) -> bool:
        """Record the route that a station announces. Return True if we had no usable route
        before.
        """
        before = self.find_next_hop()
        self._heard_routes.pop(station, None)
        if route.hops < NO_ROUTE:
            since = self._clock() - 60 * route.minutes
            self._heard_routes[station] = KnownRoute(
                route.hops, since, route.cost, route.is_battery_low
            )
        return before is None and self.find_next_hop() is not None

    def is_relaying(self) -> bool:
        """Return True if we relay to the hub on request."""
        return self._compute_relay_cost() is not None

    def get_valid_routes(self) -> dict[int, KnownRoute]:
        """Return the routes that are at most ROUTE_LIFETIME_S old, by station."""
        oldest = self._clock() - ROUTE_LIFETIME_S
        self._heard_routes = {
            n: each for n, each in self._heard_routes.items() if each.since > oldest
        }
        return self._heard_routes

    def find_next_hop(self, excluded: Collection[int] = ()) -> int | None:
        """Return the neighbour with the best route to the hub, or None if no route is short enough.
        Neighbours in `excluded` are returned only if there is no other neighbour.
        """
        near = [
            number
            for number, each in self.get_valid_routes().items()
            if each.hops + 1 <= self._hops
        ]
        candidates = [number for number in near if number not in excluded] or near
        return min(candidates, key=self._compute_worth, default=None)

    def _compute_worth(self, number: int) -> tuple[int, bool, int, float]:
        each = self._heard_routes[number]
        return each.cost, each.is_battery_low, each.hops, -each.since

    def find_own_route(self) -> RouteToHub | None:
        """Return our own route without our battery state, or None if we have no route."""
        cost = self._compute_relay_cost()
        if cost is not None:
            return RouteToHub(0, 0, cost)
        best = self.find_next_hop()
        if best is None or self._heard_routes[best].hops + 2 > self._hops:
            return None
        each = self._heard_routes[best]
        return RouteToHub(
            each.hops + 1, int((self._clock() - each.since) / 60), each.cost, each.is_battery_low
        )

    def find_route_to_announce(self, *, has_other_content: bool) -> RouteToHub | None:
        """Return our route if it must be announced now, otherwise None. A changed route is
        announced immediately, in its own packet if necessary. An unchanged route is announced after
        REPEAT_AFTER_S if the packet `has_other_content`, and after ANNOUNCE_AFTER_S in its own
        packet.
        """
        own_route = self.find_own_route()
        since = self._clock() - self._announced_at
        if (None if own_route is None else own_route.hops) == self._announced_hops:
            interval = REPEAT_AFTER_S if has_other_content else ANNOUNCE_AFTER_S
            return (
                self._make_announced_route(own_route)
                if own_route is not None and since >= interval
                else None
            )
        return RouteToHub(NO_ROUTE) if own_route is None else self._make_announced_route(own_route)

    def _make_announced_route(self, own_route: RouteToHub) -> RouteToHub:
        return replace(own_route, is_battery_low=own_route.is_battery_low or self._is_battery_low())

    def make_announcement_due(self) -> None:
        """Make an announcement of our route due now, because a station has not heard the route."""
        self._announced_at = -inf

    def record_announced(self, route: RouteToHub) -> None:
        """Record that this route was announced just now."""
        self._announced_hops, self._announced_at = (
            None if route.hops == NO_ROUTE else route.hops,
            self._clock(),
        )
