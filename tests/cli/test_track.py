"""The choice of positions that are posted as a Package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.cli.kit.track_policy import Policy, Track, compute_distance
from fieldagent.wire.gpsd import Fix

HOME = Fix(1_800_000_000.0, 47.0, 8.0, speed=0.0)
METRE = 1 / 111_195
"""Degrees of latitude."""
POLICY = Policy()


def make_fix(seconds: float, metres: float = 0.0, speed: float | None = 0.0) -> Fix:
    return HOME._replace(
        time=HOME.time + seconds, latitude=HOME.latitude + metres * METRE, speed=speed
    )


def make_track(*fixes: Fix, policy: Policy = POLICY) -> Track:
    """Return a track with only its first fix posted."""
    track = Track(policy)
    for number, fix in enumerate(fixes):
        track.add_fix(fix)
        if not number:
            track.mark_posted()
    return track


def make_driving_track() -> Track:
    """Return a track that has moved for a minute and was posted at HOME during that time."""
    track = make_track(*(make_fix(second, speed=9.0) for second in range(-60, 1)))
    track.mark_posted()
    return track


def count_posts(speed: Callable[[int], float], policy: Policy = POLICY, hours: int = 24) -> int:
    """Return the number of posts from a fix per second that wanders slightly around one place."""
    track, posted = Track(policy), 0
    for second in range(hours * 3600):
        track.add_fix(make_fix(second, metres=second * 7 % 13 - 6, speed=speed(second)))
        if track.is_due(costly=False):
            track.mark_posted()
            posted += 1
    return posted


def test_position_is_due_at_the_first_fix_and_not_before() -> None:
    track = Track()
    assert not track.is_due(costly=False)
    track.add_fix(HOME)
    assert track.is_due(costly=True)


@pytest.mark.parametrize(
    ("fix", "cheap", "costly"),
    [
        (make_fix(1), False, False),
        (make_fix(1799), False, False),
        (make_fix(1800), True, False),
        (make_fix(7200), True, True),
        (make_fix(7200, speed=None), True, True),
        (make_fix(60, metres=499), False, False),
        (make_fix(60, metres=501), True, False),
        (make_fix(29, metres=5000), False, False),
        (make_fix(120, metres=2001), True, True),
        (make_fix(-1800), True, False),
        (make_fix(-5), False, False),
        (make_fix(31, metres=40, speed=3.0), False, False),
    ],
)
def test_kit_at_rest_is_due_by_interval_and_distance(fix: Fix, cheap: bool, costly: bool) -> None:
    track = make_track(HOME, fix)
    assert track.is_due(costly=False) is cheap
    assert track.is_due(costly=True) is costly


@pytest.mark.parametrize(
    ("seconds", "speed", "cheap", "costly"),
    [
        (59, 3.0, False, False),
        (60, 3.0, True, False),
        (150, 3.0, True, True),
        (60, 1.0, True, False),
        (60, 0.9, False, False),
        (60, None, False, False),
    ],
)
def test_departure_is_due_after_a_minute_of_motion(
    seconds: int, speed: float | None, cheap: bool, costly: bool
) -> None:
    track = make_track(HOME, *(make_fix(second, speed=speed) for second in range(seconds + 1)))
    assert track.is_due(costly=False) is cheap
    assert track.is_due(costly=True) is costly


@pytest.mark.parametrize(
    ("seconds", "speed", "due"),
    [
        (299, 9.0, False),
        (300, 9.0, True),
        (299, None, False),
        (300, None, True),
        (59, 0.2, False),
        (60, 0.2, True),
        (299, 0.5, False),
    ],
)
def test_moving_kit_is_due_more_often_and_at_its_stop(
    seconds: int, speed: float | None, due: bool
) -> None:
    track = make_driving_track()
    for second in range(seconds + 1):
        track.add_fix(make_fix(second, speed=speed))
    assert track.is_due(costly=False) is due


def test_stop_is_posted_once() -> None:
    track = make_driving_track()
    due = []
    for second in range(1860):
        track.add_fix(make_fix(second, speed=0.1))
        if track.is_due(costly=False):
            track.mark_posted()
            due.append(second)
    assert due == [60]


def test_speed_history_survives_a_clock_jump() -> None:
    track = make_track(HOME, make_fix(10, speed=3.0), make_fix(-5000, speed=3.0))
    assert track.is_due(costly=False)
    track.mark_posted()
    track.add_fix(make_fix(-5000 + 300, speed=3.0))
    assert track.is_due(costly=False)


@pytest.mark.parametrize(
    ("speed", "posted"),
    [
        (lambda second: 0.3, 48),
        # A receiver indoors, which sometimes detects motion.
        (lambda second: 1.4 if second % 45 < 5 else 0.2, 48),
        # A slow walk near the threshold, never below its half for long.
        (lambda second: (0.7, 0.9, 1.1, 1.3)[second // 20 % 4] if second > 60 else 1.2, 289),
        # A town with a red light every 2 minutes.
        (lambda second: 0.0 if second % 120 > 75 else 12.0, 289),
    ],
    # One more in motion: the start.
    ids=["rest", "noise", "walk", "town"],
)
def test_positions_per_day_match_the_intervals(speed: Callable[[int], float], posted: int) -> None:
    assert count_posts(speed) == posted


def test_longer_interval_posts_fewer_positions() -> None:
    assert count_posts(lambda second: 0.3, replace(POLICY, interval=3600)) == 24


def test_distance_matches_known_values() -> None:
    assert compute_distance(HOME, HOME) == 0
    assert compute_distance(HOME, make_fix(0, metres=1000)) == pytest.approx(1000, rel=1e-3)
    zurich, sydney = Fix(0, 47.3769, 8.5417), Fix(0, -33.8688, 151.2093)
    assert compute_distance(zurich, sydney) == pytest.approx(16_569_000, rel=0.01)
    west, east = Fix(0, 0, 179.999), Fix(0, 0, -179.999)
    assert compute_distance(west, east) == pytest.approx(222, rel=0.01)


fixes = st.builds(
    Fix,
    st.floats(0, 4e9),
    st.floats(-90, 90),
    st.floats(-180, 180),
    speed=st.none() | st.floats(0, 100),
)


@given(fixes, st.lists(fixes, max_size=20))
def test_costly_channel_is_never_due_more_often_than_a_cheap_one(
    first: Fix, later: list[Fix]
) -> None:
    track = make_track(first, *later)
    if track.is_due(costly=True):
        assert track.is_due(costly=False)


@given(fixes, st.lists(fixes, max_size=20))
def test_posted_position_is_not_due_until_the_interval_ends(first: Fix, later: list[Fix]) -> None:
    track = make_track(first, *later)
    track.mark_posted()
    newest = [first, *later][-1]
    assert not track.is_due(costly=False)
    track.add_fix(newest._replace(time=newest.time + 86_400))
    assert track.is_due(costly=True)


@given(fixes, fixes)
def test_distance_is_symmetric(one: Fix, other: Fix) -> None:
    assert 0 <= compute_distance(one, other) <= 20_100_000
    assert compute_distance(one, other) == pytest.approx(compute_distance(other, one), abs=1e-3)
