"""Whether a kit has come into a fence, or gone out of it: decided from its positions alone.

1. Positions are judged in the order of their own times. One that is older than the newest known
   decides nothing: it came late.
2. A position is inside where it is so by more than its accuracy, outside where it is so by more
   than that and `EDGE`. Between, it is unclear, and nothing changes: a kit that stands on the edge
   does not come and go.
3. The first clear position decides where the kit is, and is no event. A later one that is clear and
   on the other side is one.
"""

from __future__ import annotations

from fieldagent.hub.places.shape import Shape, beyond
from fieldagent.system.lazy_named_tuple import NamedTuple

EDGE = 30.0
"""Metres beyond the edge within which a kit that was inside has not left: receivers err so far."""


class DatedPlace(NamedTuple):
    latitude: float
    longitude: float
    at: float
    """When the kit was there, by its own word: Unix time."""
    accuracy: float = 0.0
    """Metres by which it may be wrong, where that is known."""


class FenceSide(NamedTuple):
    """Where a kit stands to a fence, as far as its positions tell."""

    inside: bool | None = None
    """By the newest clear position; None: there was none."""
    clear: float = 0.0
    """The time of that one."""
    newest: float = 0.0
    """The time of the newest position, clear or not."""


class Crossing(NamedTuple):
    """Two positions of a kit, one after the other, on either side of an edge."""

    entered: bool
    at: float
    """The time of the later one."""
    before: float
    """The time of the earlier one, the last that was clear."""
    unclear_between: bool
    """Whether a position between was too near the edge to tell."""


def side_of(shape: Shape, position: DatedPlace) -> bool | None:
    """Return whether a position is inside; None where it is too near the edge to tell."""
    off = beyond(shape, position.latitude, position.longitude)
    if off < -position.accuracy:
        return True
    return False if off > position.accuracy + EDGE else None


def judge(
    shape: Shape, standing: FenceSide, position: DatedPlace
) -> tuple[FenceSide, Crossing | None]:
    """Return how the kit stands after a position, and what that shows."""
    if position.at <= standing.newest:
        return standing, None
    inside = side_of(shape, position)
    if inside is None:
        return standing._replace(newest=position.at), None
    after = FenceSide(inside, position.at, position.at)
    if standing.inside in (None, inside):
        return after, None
    unclear = standing.newest > standing.clear
    return after, Crossing(inside, position.at, standing.clear, unclear)
