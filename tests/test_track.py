"""Which positions are worth a Package."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.track import Policy, Track, distance
from fieldagent.wire.gpsd import Fix

HOME = Fix(1_000_000.0, 47.0, 8.0, speed=0.0)
METRE = 1 / 111_195
"""Degrees of latitude."""
POLICY = Policy()


def after(seconds: float, metres: float = 0.0, speed: float | None = 0.0) -> Fix:
    return HOME._replace(
        time=HOME.time + seconds, latitude=HOME.latitude + metres * METRE, speed=speed
    )


def posted(fix: Fix = HOME, policy: Policy = POLICY) -> Track:
    track = Track(policy)
    track.posted(fix)
    return track


def test_the_first_goes_at_once() -> None:
    assert Track().due(HOME, costly=True)


@pytest.mark.parametrize(
    ("fix", "cheap", "costly"),
    [
        (after(1), False, False),
        (after(1799), False, False),
        (after(1800), True, False),
        (after(7200), True, True),
        (after(7200, speed=None), True, True),
        (after(60, metres=499), False, False),
        (after(60, metres=501), True, False),
        (after(29, metres=5000), False, False),
        (after(120, metres=2001), True, True),
        (after(31, metres=40, speed=3.0), True, False),
        (after(121, metres=40, speed=3.0), True, True),
        (after(-1800), True, False),
        (after(-5), False, False),
    ],
)
def test_from_rest(fix: Fix, cheap: bool, costly: bool) -> None:
    assert posted().due(fix, costly=False) is cheap
    assert posted().due(fix, costly=True) is costly


@pytest.mark.parametrize(
    ("fix", "due"),
    [
        (after(299, metres=400, speed=9.0), False),
        (after(300, metres=400, speed=9.0), True),
        (after(40, metres=30, speed=0.2), True),
        (after(10, metres=30, speed=0.2), False),
    ],
)
def test_in_motion_oftener_and_where_it_came_to_rest(fix: Fix, due: bool) -> None:
    moving = posted(HOME._replace(speed=9.0))
    assert moving.due(fix, costly=False) is due


def test_distances() -> None:
    assert distance(HOME, HOME) == 0
    assert distance(HOME, after(0, metres=1000)) == pytest.approx(1000, rel=1e-3)
    zurich, sydney = Fix(0, 47.3769, 8.5417), Fix(0, -33.8688, 151.2093)
    assert distance(zurich, sydney) == pytest.approx(16_569_000, rel=0.01)
    west, east = Fix(0, 0, 179.999), Fix(0, 0, -179.999)
    assert distance(west, east) == pytest.approx(222, rel=0.01)


fixes = st.builds(
    Fix,
    st.floats(0, 4e9),
    st.floats(-90, 90),
    st.floats(-180, 180),
    speed=st.none() | st.floats(0, 100),
)


@given(fixes, fixes, st.booleans())
def test_costly_is_never_oftener(first: Fix, second: Fix, costly: bool) -> None:
    if posted(first).due(second, costly=True):
        assert posted(first).due(second, costly=False)


@given(fixes, fixes)
def test_the_distance_is_the_same_both_ways(one: Fix, other: Fix) -> None:
    assert 0 <= distance(one, other) <= 20_100_000
    assert distance(one, other) == pytest.approx(distance(other, one), abs=1e-3)


def test_a_day_at_rest_costs_the_interval_s_worth() -> None:
    track, count = Track(replace(POLICY, interval=3600)), 0
    for second in range(0, 86_400, 10):
        jitter = (second * 7 % 13 - 6) * 2
        fix = after(second, metres=jitter, speed=0.3)
        if track.due(fix, costly=False):
            track.posted(fix)
            count += 1
    assert count == 24
