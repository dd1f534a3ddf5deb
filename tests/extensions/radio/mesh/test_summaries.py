"""The effect of a packet with a number far ahead on the knowledge about a station, and its
duration. Also the times of beacons.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from fieldagent.agent.channels.air_pace import CROWD_STATIONS
from fieldagent.extensions.radio.mesh.summaries import (
    ASK_AFTER_S,
    ASKS_MAX,
    FRESH_S,
    POSTPONE_MAX_S,
    SLOWER_MAX,
    Summaries,
    list_confirmed,
    list_numbers,
)
from fieldagent.wire.envelope import Ack, Entry

OWN, OTHER = 1, 7
FAR = 2**62
DIGEST = b"item"


def summary(first: int, *numbers: int) -> Entry:
    """Return another kit's summary of its items from `OTHER`."""
    return Entry(first, Ack(OTHER, 0, frozenset(n - first for n in numbers), digest=DIGEST))


def with_items(*numbers: int) -> Summaries:
    summaries = Summaries(OWN, lambda: 0.5)
    for number in numbers:
        summaries.record_item(OTHER, number, DIGEST, 0.0)
    return summaries


def list_summary_numbers(summaries: Summaries) -> list[int]:
    entry = summaries.make_summary(OTHER)
    return [] if entry is None else list_confirmed(entry)


def test_summary_with_far_number_hides_items_only_temporarily() -> None:
    summaries, now = with_items(1, 2, 3), 0.0
    assert summaries.process_summary(summary(FAR, FAR), now) == []
    for _ in range(ASKS_MAX):
        asking = summaries.make_summary(OTHER)
        assert asking is not None and (asking.sequence, list_numbers(asking)) == (FAR, [])
        now += ASK_AFTER_S
        summaries.mark_sent(OTHER, now)
    summaries.record_item(OTHER, 4, DIGEST, now)
    assert list_summary_numbers(summaries) == [1, 2, 3, 4], "no kit repeated the far item"
    assert summaries.process_summary(summary(FAR, FAR), now) == [], "no new request"
    assert list_summary_numbers(summaries) == [1, 2, 3, 4]
    assert summaries.process_summary(summary(4, 4, 5), now) == []
    entry = summaries.make_summary(OTHER)
    assert entry is not None and summaries.process_summary(summary(1, 1, 2), now) == [3, 4]


def test_stored_items_are_repeated_while_far_number_is_requested() -> None:
    summaries = with_items(1, 2, 3)
    summaries.process_summary(summary(FAR, FAR), 0.0)
    summaries.record_item(OTHER, 4, DIGEST, 1.0)
    assert summaries.find_digest(OTHER, 4) == DIGEST
    assert summaries.process_summary(summary(1, 1, 2), 2.0) == [3, 4]


def test_item_with_far_number_leaves_summary_after_hour() -> None:
    summaries = with_items(1, 2, FAR)
    summaries.record_item(OTHER, 3, DIGEST, FRESH_S - 1)
    assert list_summary_numbers(summaries) == [FAR]
    assert summaries.process_summary(summary(1, 1, 2), FRESH_S - 1) == [3], (
        "stored items are repeated in any case"
    )
    summaries.record_item(OTHER, 4, DIGEST, FRESH_S)
    assert list_summary_numbers(summaries) == [1, 2, 3, 4]
    summaries.process_summary(summary(FAR, FAR), FRESH_S)
    assert list_summary_numbers(summaries) == [1, 2, 3, 4], "received items are not requested again"
    for number in range(5, 500):
        summaries.record_item(OTHER, number, DIGEST, FRESH_S)
    assert list_summary_numbers(summaries) == [*range(484, 500)]


def test_late_old_item_does_not_hide_recent_items() -> None:
    summaries = with_items(*range(100, 200))
    summaries.record_item(OTHER, 1, DIGEST, FRESH_S - 1)
    assert list_summary_numbers(summaries) == [*range(184, 200)]


def test_memory_for_claimed_numbers_is_bounded() -> None:
    summaries, now = with_items(1), 0.0
    for step in range(1, 50):
        summaries.process_summary(summary(step * 1000, *range(step * 1000, step * 1000 + 64)), now)
        now += ASK_AFTER_S
        summaries.mark_sent(OTHER, now)
    for _ in range(ASKS_MAX):
        now += ASK_AFTER_S
        summaries.mark_sent(OTHER, now)
    assert list_summary_numbers(summaries) == [1]


def beacons(crowd: int, *, speaks_every: float, seconds: int = 3600) -> list[float]:
    """Return the start times of beacons, for a kit that misses a new item every 20 seconds."""
    summaries, begun = with_items(1), [0.0]
    summaries.set_crowd(crowd)
    for now in range(seconds):
        if now % 20 == 0:
            number = 2 + now // 20
            summaries.process_summary(summary(1, number), now)
            if now > 60:
                summaries.record_item(OTHER, number - 3, DIGEST, now)
        if now % speaks_every == 1:
            for station in summaries.list_due_stations(now, has_other_content=True):
                summaries.mark_sent(station, now)
        if summaries.compute_due_time() <= now:
            summaries.begin(now)
            begun.append(now)
            for station in summaries.list_due_stations(now, has_other_content=False):
                summaries.mark_sent(station, now)
    return begun


@pytest.mark.parametrize("crowd", [CROWD_STATIONS, 3 * CROWD_STATIONS])
@pytest.mark.parametrize("speaks_every", [60, 10_000])
def test_station_that_sends_items_postpones_beacons_in_crowd(
    crowd: int, speaks_every: float
) -> None:
    begun = beacons(crowd, speaks_every=speaks_every)
    pauses = [after - before for before, after in pairwise(begun)]
    assert max(pauses) <= POSTPONE_MAX_S + 1, "a beacon is postponed too long"
    put_off = crowd > CROWD_STATIONS and speaks_every == 60
    assert (min(pauses[1:]) >= POSTPONE_MAX_S - ASK_AFTER_S) == put_off, pauses


@pytest.mark.parametrize(("crowd", "rides"), [(CROWD_STATIONS, True), (3 * CROWD_STATIONS, False)])
def test_summary_known_from_other_kit_is_not_sent_in_crowd(crowd: int, rides: bool) -> None:
    summaries, now = with_items(1, 2), 1.0
    summaries.set_crowd(crowd)
    assert summaries.list_due_stations(now, has_other_content=True) == [OTHER]
    summaries.process_summary(summary(1, 1, 2), 1.0)
    assert bool(summaries.list_due_stations(now, has_other_content=True)) == rides
    summaries.process_summary(summary(1, 1, 2, 3), 2.0)
    assert summaries.list_due_stations(now, has_other_content=True) == [OTHER], "no request"
    summaries.mark_sent(OTHER, now)
    assert summaries.list_due_stations(now, has_other_content=True) == []
    assert bool(
        summaries.list_due_stations(now + SLOWER_MAX * ASK_AFTER_S, has_other_content=True)
    ) == (not rides)
