"""Detection of fence crossings from a kit's positions."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fieldagent.extensions.places.hub import shape
from fieldagent.extensions.places.hub.crossing import (
    EDGE_MARGIN_M,
    Crossing,
    FenceSide,
    compute_crossing,
)
from fieldagent.package.coordinates import EARTH, DatedPlace

HUT = shape.make_circle(45.0, 7.0, 500)
METRE = 180 / 3.141592653589793 / EARTH
"""Degrees of latitude."""


def make_position(metres: float, when: float, accuracy: float = 0.0) -> DatedPlace:
    """Return a position that many metres north of the hut."""
    return DatedPlace(45.0 + metres * METRE, 7.0, when, accuracy)


def list_crossings(*positions: DatedPlace) -> list[Crossing]:
    standing, crossings = FenceSide(), []
    for each in positions:
        standing, crossed = compute_crossing(HUT, standing, each)
        crossings += [crossed] if crossed else []
    return crossings


def test_positions_inside_and_outside_are_a_crossing() -> None:
    assert list_crossings(
        make_position(0, 1), make_position(900, 2), make_position(950, 3), make_position(10, 4)
    ) == [
        Crossing(False, 2, 1, False),
        Crossing(True, 4, 3, False),
    ]


def test_first_position_is_no_crossing() -> None:
    assert list_crossings(make_position(900, 1)) == list_crossings(make_position(0, 1)) == []


def test_late_older_position_causes_no_crossing() -> None:
    assert list_crossings(make_position(0, 10), make_position(900, 5)) == []
    assert list_crossings(make_position(0, 10), make_position(0, 10), make_position(900, 10)) == []
    # It was outside at 5 and is inside at 10. The crossing is reported when the newer position
    # arrives.
    assert list_crossings(
        make_position(900, 1), make_position(0, 10), make_position(900, 5), make_position(0, 11)
    ) == [Crossing(True, 10, 1, False)]


def test_inaccurate_position_decides_only_if_its_error_is_small_enough() -> None:
    assert list_crossings(make_position(0, 1), make_position(900, 2, accuracy=600)) == []
    assert list_crossings(
        make_position(0, 1), make_position(900, 2, accuracy=600), make_position(900, 3)
    ) == [Crossing(False, 3, 1, True)]
    # A position that is less exact than the fence's width is never inside.
    assert list_crossings(make_position(900, 1), make_position(0, 2, accuracy=501)) == []


@given(st.lists(st.floats(-EDGE_MARGIN_M, EDGE_MARGIN_M - 0.1), max_size=30), st.booleans())
def test_kit_at_the_edge_of_a_fence_causes_no_repeated_crossing(
    errors: list[float], inside: bool
) -> None:
    began = make_position(0 if inside else 2000, 0.5)
    some = [make_position(500 + error, when) for when, error in enumerate(errors, 1)]
    crossed = list_crossings(began, *some)
    assert len(crossed) <= (0 if inside else 1)


@given(st.lists(st.tuples(st.floats(0, 1200), st.integers(1, 40), st.floats(0, 700)), max_size=30))
def test_crossings_alternate_and_advance_in_time(
    walked: list[tuple[float, int, float]],
) -> None:
    crossed = list_crossings(
        *(make_position(metres, when, accuracy) for metres, when, accuracy in walked)
    )
    for each in crossed:
        assert each.before < each.at
    for one, other in pairwise(crossed):
        assert one.entered is not other.entered and one.at <= other.before
