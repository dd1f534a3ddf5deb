"""Several positions in one entry: as they were, in few bytes, and safe to read."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.package.package import Location, Message
from fieldagent.wire.credit import CREDIT_BYTES
from fieldagent.wire.envelope import Entry, decode, derive_key, digest_of, encode
from fieldagent.wire.sbd import MO_BYTES
from fieldagent.wire.track import COUNT_MAX, TrackFix, read_track, write_track

TIME = 1_790_000_000
NUMBER = 50_000_000

WAYS = {
    # Metres a second, seconds between two, degrees that it turns between two.
    "walking": (1.3, 300, 40.0),
    "driving": (18.0, 30, 25.0),
    "standing": (0.0, 1800, 0.0),
}


def bare(sequence: int, time: int, latitude: float, longitude: float) -> Entry:
    moment = datetime.fromtimestamp(time, UTC)
    return Entry(sequence, Location(latitude, longitude, moment), time)


def recorded(way: str, count: int, seed: int = 1) -> list[Entry]:
    """As a receiver gives them: with its noise of 3 m, and a second more now and then."""
    chance = random.Random(seed)
    speed, every, turns = WAYS[way]
    latitude, longitude, time, course = 47.3769, 8.5417, TIME, chance.uniform(0, 360)
    entries = []
    for number in range(count):
        seen = [round(at + chance.gauss(0, 3.0) / 111_000, 5) for at in (latitude, longitude)]
        entries.append(bare(NUMBER + number, time, *seen))
        passed = every + chance.choice((0, 0, 0, 1))
        time, course = time + passed, course + chance.gauss(0, turns)
        gone = speed * passed * chance.uniform(0.6, 1.1)
        latitude += gone * math.cos(math.radians(course)) / 111_000
        longitude += gone * math.sin(math.radians(course)) / 75_000
    return entries


def fitting(way: str, room: int, seed: int) -> int:
    entries = recorded(way, 120, seed)
    return max(n for n in range(1, 121) if len(encode(entries[:n], packed=True)) <= room)


@pytest.mark.parametrize("way", WAYS)
def test_sixty_positions_fit_one_message_and_eight_a_credit(way: str) -> None:
    for seed in range(5):
        assert fitting(way, MO_BYTES, seed) >= 60
        assert fitting(way, CREDIT_BYTES, seed) >= 8


@pytest.mark.parametrize("way", WAYS)
def test_they_come_out_as_the_single_locations_that_went_in(way: str) -> None:
    sent = recorded(way, 60)
    newest_first = [*reversed(sent), Entry(7, Message("at the hut"), TIME)]
    key = derive_key(bytes(32), "MO")
    read = decode(encode(newest_first, key=key, packed=True), keys=[key])
    assert list(read.entries) == [*sent, newest_first[-1]]
    assert read.packed
    assert [digest_of(e) for e in read.entries[:60]] == [digest_of(e) for e in sent]


@pytest.mark.parametrize(
    "other",
    [
        Entry(3, Location(47.3769123, 8.5, None), TIME),
        Entry(3, Location(47.0, 8.5, None, altitude=400.0), TIME),
        Entry(3, Location(47.0, 8.5, None, None, 1.5), TIME),
        Entry(3, Location(47.0, 8.5, None, None, None, 90.0), TIME),
        Entry(3, Location(47.0, 8.5, None), TIME, sos=True),
    ],
    ids=["finer", "altitude", "speed", "course", "SOS"],
)
def test_what_a_track_cannot_tell_goes_beside_it(other: Entry) -> None:
    pair = [bare(1, TIME, 47.1, 8.1), bare(2, TIME + 60, 47.2, 8.2)]
    _, _, _, *written = cbor2.loads(encode([*pair, other], packed=True))
    assert len(written[1][4 if other.sos else 3]) == 8
    read = decode(encode([*pair, other], packed=True)).entries
    plain = decode(encode([*pair, other])).entries
    assert read == plain


def test_one_position_is_written_as_ever() -> None:
    assert encode(recorded("walking", 1), packed=True) == encode(recorded("walking", 1))


fixes = st.builds(
    TrackFix,
    st.integers(0, 2**32 - 1),
    st.integers(-(2**32), 2**32),
    st.integers(-9_000_000, 9_000_000),
    st.integers(-18_000_000, 18_000_000),
)


@given(st.lists(fixes, min_size=2, max_size=COUNT_MAX))
def test_any_track_comes_back(track: list[TrackFix]) -> None:
    assert read_track(track[0].sequence, track[0].time, write_track(track)) == track


@given(st.binary(min_size=9, max_size=120), st.integers(0, 2**32 - 1), st.integers(-9, 9))
def test_any_bytes_are_refused_or_read_as_places_on_earth(
    body: bytes, sequence: int, time: int
) -> None:
    beside = [1, 9, 0, "good"]
    read = decode(cbor2.dumps([1, 0, 0, [2, sequence, time, body], beside]))
    assert read.entries[-1].content == Message("good")
    assert bool(read.not_understood) is (len(read.entries) == 1)
    for entry in read.entries[:-1]:
        assert isinstance(entry.content, Location)
        assert decode(encode([entry])).entries == (entry,)


def test_every_cut_of_a_track_is_refused() -> None:
    _, _, _, (*head, body) = cbor2.loads(encode(recorded("walking", 20), packed=True))
    for cut in (0, 1, 9, *range(10, len(body))):
        read = decode(cbor2.dumps([1, 0, 0, [*head, body[:cut]]]))
        assert not read.entries
        assert "damaged" in read.not_understood[0]
