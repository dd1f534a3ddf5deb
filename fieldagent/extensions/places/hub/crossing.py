"""Detects from positions whether a kit has entered or left a fence.

1. Positions are processed in the order of their own times. A position that is older than the newest
   known position arrived late and is ignored.
2. A position is inside if its distance from the edge is greater than its accuracy. It is outside if
   this distance is greater than its accuracy plus `EDGE_MARGIN_M`. Otherwise it is unclear and
   changes nothing, so a kit on the edge does not cause repeated alarms.
3. The first clear position sets the side of the kit without an event. A later clear position on
   the other side is an event.
"""

from __future__ import annotations

from fieldagent.extensions.places.hub.shape import Shape, compute_distance_outside
from fieldagent.package.coordinates import DatedPlace
from fieldagent.system.lazy_named_tuple import NamedTuple

EDGE_MARGIN_M = 30.0
"""Width in metres of a zone outside the edge. In this zone, a kit does not count as outside,
because receivers are inaccurate."""


class FenceSide(NamedTuple):
    """Side of a fence's edge on which a kit is, according to its positions."""

    inside: bool | None = None
    """True if the newest clear position was inside, False if it was outside. None if there was no
    clear position."""
    clear: float = 0.0
    """Unix time of the newest clear position."""
    newest: float = 0.0
    """Unix time of the newest position, even if the position is not clear."""


class Crossing(NamedTuple):
    """Two positions of a kit on different sides of a fence's edge."""

    entered: bool
    at: float
    """Unix time of the later position."""
    before: float
    """Unix time of the earlier position, which is the last clear position before."""
    unclear_between: bool
    """True if a position between the two was too near the edge to be clear."""


def find_side(shape: Shape, position: DatedPlace) -> bool | None:
    """Return True if a position is inside, False if it is outside, or None if it is too near the
    edge.
    """
    off = compute_distance_outside(shape, position.latitude, position.longitude)
    if off < -position.accuracy:
        return True
    return False if off > position.accuracy + EDGE_MARGIN_M else None


def compute_crossing(
    shape: Shape, side: FenceSide, position: DatedPlace
) -> tuple[FenceSide, Crossing | None]:
    """Return the side on which the kit is after a new position. If the kit has crossed the edge,
    also return the crossing.
    """
    if position.at <= side.newest:
        return side, None
    inside = find_side(shape, position)
    if inside is None:
        return side._replace(newest=position.at), None
    after = FenceSide(inside, position.at, position.at)
    if side.inside in (None, inside):
        return after, None
    unclear = side.newest > side.clear
    return after, Crossing(inside, position.at, side.clear, unclear)
