"""Several positions in one entry: unchanged, in few bytes, and safe to decode."""

from __future__ import annotations

import math
import random
import re
import statistics
from bisect import bisect_right
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.package.package import Location, Message, PositionSource
from fieldagent.wire.credit import CREDIT_BYTES
from fieldagent.wire.envelope import Entry, compute_item_digest, decode, derive_key, encode
from fieldagent.wire.envelope_form import decode_form
from fieldagent.wire.sbd import MO_BYTES
from fieldagent.wire.track import COUNT_MAX, TrackFix, decode_track, encode_track

TIME = 1_790_000_000
NUMBER = 50_000_000

WAYS = {
    # Metres per second, seconds between two positions, and meanwhile degrees of a turn and metres
    # of climb.
    "walking": (1.3, 300, 40.0, 8.0),
    "driving": (18.0, 30, 25.0, 5.0),
    "sailing": (3.0, 600, 12.0, 0.0),
    "standing": (0.0, 1800, 0.0, 0.0),
}


def bare(sequence: int, time: int, latitude: float, longitude: float) -> Entry:
    moment = datetime.fromtimestamp(time, UTC)
    return Entry(sequence, Location(latitude, longitude, moment), time)


def recorded(
    way: str, count: int, seed: int = 1, *, full: bool = False, irregular: bool = False
) -> list[Entry]:
    """Return positions like those of a receiver: with its noise of 3 m, and sometimes an additional
    second. With `full`, they have altitude, speed and course. With `irregular`, some have these,
    and times and numbers jump.
    """
    chance = random.Random(seed)
    speed, every, turns, climbs = WAYS[way]
    latitude, longitude, time, course = 47.3769, 8.5417, TIME, chance.uniform(0, 360)
    height, number, entries = chance.uniform(200, 2500), NUMBER, []
    for _ in range(count):
        seen = [round(at + chance.gauss(0, 3.0) / 111_000, 5) for at in (latitude, longitude)]
        pace = speed * chance.uniform(0.6, 1.1)
        one = bare(number, time, *seen)
        if full and (not irregular or chance.random() < 0.8):
            heading = float(round(course + chance.gauss(0, 5.0)) % 360)
            motion = float(round(height + chance.gauss(0, 4.0))), round(pace, 1), heading
            assert isinstance(one.content, Location)
            altitude, speed_over_ground, course_over_ground = motion
            content = replace(
                one.content,
                altitude=altitude,
                speed_over_ground=speed_over_ground,
                course_over_ground=course_over_ground,
            )
            one = replace(one, content=content)
        entries.append(one)
        passed = every + chance.choice((0, 0, 0, 1))
        number += 1
        if irregular:
            passed, number = int(passed * chance.uniform(0.3, 3.0)), number + chance.choice((0, 1))
        time, course = time + passed, course + chance.gauss(0, turns)
        height = max(0.0, height + chance.gauss(0, climbs))
        gone = pace * passed
        latitude += gone * math.cos(math.radians(course)) / 111_000
        longitude += gone * math.sin(math.radians(course)) / 75_000
    return entries


def fitting(way: str, room: int, *, full: bool = False, irregular: bool = False) -> float:
    """Return the median number of positions that fit into that many bytes, from five tracks."""

    def fit(seed: int) -> int:
        entries = recorded(way, COUNT_MAX, seed, full=full, irregular=irregular)
        sizes = range(1, COUNT_MAX + 1)
        return bisect_right(sizes, room, key=lambda n: len(encode(entries[:n], is_packed=True)))

    return statistics.median(map(fit, range(5)))


@pytest.mark.parametrize("way", WAYS)
def test_documented_track_capacity_matches_the_code(way: str) -> None:
    text = (Path(__file__).parents[2] / "docs/how-to/satellite.md").read_text()
    (row,) = re.findall(rf"^\| {way}, .*?\| (.*) \|$", text, re.M)
    fit = [
        fitting(way, room, full=full, irregular=irregular)
        for full in (False, True)
        for irregular in (False, True)
        for room in (MO_BYTES, CREDIT_BYTES)
    ]
    assert [*map(int, re.split(r" \| |, ", row))] == fit
    assert fit[0] >= 100 and fit[1] >= 8, "time and place"
    assert fit[4] >= 45 and fit[5] >= 5, "with altitude, speed and course"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("full", "irregular"), [(0, 0), (1, 0), (1, 1)])
def test_track_is_decoded_to_the_original_locations(way: str, full: int, irregular: int) -> None:
    sent = recorded(way, 45, full=bool(full), irregular=bool(irregular))
    newest_first = [*reversed(sent), Entry(7, Message("at the hut"), TIME)]
    key = derive_key(bytes(32), "MO")
    read = decode(encode(newest_first, key=key, is_packed=True), keys=[key])
    assert list(read.entries) == [*sent, newest_first[-1]]
    assert read.is_packed
    assert [compute_item_digest(e) for e in read.entries[:45]] == [
        compute_item_digest(e) for e in sent
    ]


@pytest.mark.parametrize(
    "other",
    [
        Entry(3, Location(47.3769123, 8.5, None), TIME),
        Entry(3, Location(47.0, 8.5, None, source=PositionSource.TYPED), TIME),
        Entry(3, Location(47.0, 8.5, None), TIME, to="ada"),
        Entry(3, Location(47.0, 8.5, None), TIME, sos=True),
    ],
    ids=["finer", "source", "for somebody", "SOS"],
)
def test_location_that_a_track_cannot_contain_is_sent_separately(other: Entry) -> None:
    pair = [bare(1, TIME, 47.1, 8.1), bare(2, TIME + 60, 47.2, 8.2)]
    track, beside = decode_form(encode([*pair, other], is_packed=True)).entries
    position = (beside[0] if other.addressed else beside)[4 if other.sos else 3]
    assert (len(position), len(track)) == (8, 4)
    read = decode(encode([*pair, other], is_packed=True)).entries
    plain = decode(encode([*pair, other])).entries
    assert read == plain


def test_single_position_is_not_packed_as_a_track() -> None:
    one = recorded("walking", 1)
    (entry,), (plain,) = (decode_form(encode(one, is_packed=p)).entries for p in (True, False))
    assert entry == plain


def test_course_difference_is_encoded_the_shorter_way() -> None:
    """The turn from 350 to 10 degrees costs as little as that from 10 to 30."""

    def track(*courses: float) -> list[Entry]:
        return [
            Entry(n, Location(47.0, 8.5, None, course_over_ground=course), TIME)
            for n, course in enumerate(courses)
        ]

    over_north, elsewhere = track(330.0, 350.0, 10.0, 30.0), track(30.0, 50.0, 70.0, 90.0)
    sizes = {len(encode(each, is_packed=True)) for each in (over_north, elsewhere)}
    assert len(sizes) == 1
    contents = [each.content for each in decode(encode(over_north, is_packed=True)).entries]
    courses = [each.course_over_ground for each in contents if isinstance(each, Location)]
    assert courses == [330.0, 350.0, 10.0, 30.0]


fixes = st.builds(
    TrackFix,
    st.integers(0, 2**32 - 1),
    st.integers(-(2**32), 2**32),
    st.integers(-9_000_000, 9_000_000),
    st.integers(-18_000_000, 18_000_000),
    st.none() | st.integers(-(2**32), 2**32 - 1),
    st.none() | st.integers(0, 2**32 - 1),
    st.none() | st.integers(-180, 179),
)


@given(st.lists(fixes, min_size=2, max_size=COUNT_MAX))
def test_any_track_survives_encoding(track: list[TrackFix]) -> None:
    assert decode_track(track[0].sequence, track[0].time, encode_track(track)) == track


@given(st.binary(min_size=9, max_size=120), st.integers(0, 2**32 - 1), st.integers(-9, 9))
def test_any_bytes_are_refused_or_read_as_positions_on_earth(
    body: bytes, sequence: int, time: int
) -> None:
    beside = [1, 9, 0, "good"]
    read = decode(cbor2.dumps([1, 0, 0, [2, sequence, time, body], beside]))
    assert read.entries[-1].content == Message("good")
    assert bool(read.not_understood) is (len(read.entries) == 1)
    for entry in read.entries[:-1]:
        assert isinstance(entry.content, Location)
        assert decode(encode([entry])).entries == (entry,)


@pytest.mark.parametrize("full", [False, True])
def test_every_truncated_track_is_refused(full: bool) -> None:
    ((*head, body),) = decode_form(
        encode(recorded("walking", 20, full=full), is_packed=True)
    ).entries
    for cut in (0, 1, 9, *range(10, len(body))):
        read = decode(cbor2.dumps([1, 0, 0, [*head, body[:cut]]]))
        assert not read.entries
        assert "damaged" in read.not_understood[0]
