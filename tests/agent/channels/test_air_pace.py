"""The decision when to transmit on a shared air, from heard packets and answers."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.agent.channels.air_pace import (
    ACK_MOST,
    ACK_WITHIN,
    AGAIN_FIRST,
    AGAIN_MAX,
    ANSWER_TIMEOUT_S,
    ANSWER_WAIT_MIN_S,
    ANSWERING_STATIONS,
    CROWD_STATIONS,
    FRAGMENT_SPACING_S,
    PAUSE_MAX_S,
    PRESENT_S,
    UNANSWERED_ROUNDS_MAX,
    AirPace,
    AirTurn,
    compute_ack_wait,
    compute_lone_wait,
)

SHARES = st.floats(0, 1)


def paced(*heard: tuple[float, AirTurn]) -> AirPace:
    pace = AirPace()
    for at, turn in heard:
        pace.record_packet(turn, at)
    return pace


@pytest.mark.parametrize(
    ("crowd", "longest"),
    [
        (0, PAUSE_MAX_S / CROWD_STATIONS),
        (1, PAUSE_MAX_S / CROWD_STATIONS),
        (CROWD_STATIONS, PAUSE_MAX_S),
        (30, PAUSE_MAX_S),
    ],
)
def test_pause_grows_with_number_of_stations(crowd: int, longest: float) -> None:
    assert paced((0.0, AirTurn(stations_in_range=crowd))).compute_pause(1.0) == pytest.approx(
        longest
    )


@pytest.mark.parametrize(
    ("heard", "held"),
    [
        ([(0.0, 3)], 3 * FRAGMENT_SPACING_S),
        ([(0.0, 3), (0.2, 2)], 2 * 0.2),
        ([(0.0, 3), (0.2, 0)], 0.0),
    ],
    ids=["more-follow", "spacing-of-earlier-fragments", "sender-listens"],
)
def test_pause_lasts_until_round_of_fragments_ends(
    heard: list[tuple[float, int]], held: float
) -> None:
    pace = paced(*((at, AirTurn(follows, 1)) for at, follows in heard))
    assert held <= pace.compute_pause(0.0) <= held + PAUSE_MAX_S / CROWD_STATIONS


def test_own_transmission_ends_round_of_other_station() -> None:
    pace = paced((0.0, AirTurn(5, 1)))
    pace.record_transmission(0.1)
    assert pace.compute_pause(1.0) < FRAGMENT_SPACING_S


def test_answer_wait_adapts_to_measured_answer_times() -> None:
    pace = AirPace()
    assert pace.compute_answer_wait(0, part=True) >= ANSWER_TIMEOUT_S
    for _ in range(30):
        pace.record_answer(1.0, 0.6, part=True)
    assert ANSWER_WAIT_MIN_S <= pace.compute_answer_wait(0, part=True) < 1.0
    assert pace.compute_answer_wait(0, part=False) >= ANSWER_TIMEOUT_S
    assert pace.compute_answer_wait(UNANSWERED_ROUNDS_MAX, part=True) >= ANSWER_TIMEOUT_S, (
        "the station may be gone"
    )


@given(st.integers(0, 50), SHARES, st.booleans(), st.booleans())
def test_retry_wait_grows_without_answer(
    tries: int, share: float, urgent: bool, part: bool
) -> None:
    pace = AirPace()
    pauses = [
        pace.compute_retry_wait(each, 0.0, share, urgent=urgent, part=part)
        for each in (tries, tries + 1)
    ]
    assert 0 < pauses[0] <= pauses[1] <= (60.0 if urgent else AGAIN_MAX)


@given(st.integers(0, 50), SHARES)
def test_retry_wait_stays_short_after_recent_answer(tries: int, share: float) -> None:
    pace = AirPace()
    pace.record_answer(0.0, 1.0, part=False)
    assert pace.compute_retry_wait(tries, 1.0, share, urgent=False, part=False) <= 2 * AGAIN_FIRST
    assert pace.compute_retry_wait(20, 7200.0, 1.0, urgent=False, part=False) == AGAIN_MAX


def test_heard_station_shortens_retry_wait_after_miss() -> None:
    pace = AirPace()
    pace.record_missed_answer(1.0)
    assert pace.read_retry_request()
    assert not pace.read_retry_request(), "no answer has been missed since"
    pace.record_packet(AirTurn(is_from_known_station=True), 600.0)
    assert pace.compute_retry_wait(9, 600.0, 1.0, urgent=False, part=False) == 2 * AGAIN_FIRST


def test_early_retries_end_after_unanswered_rounds() -> None:
    pace, now = AirPace(), 0.0
    for _ in range(UNANSWERED_ROUNDS_MAX):
        pace.record_packet(AirTurn(is_from_known_station=True), now)
        pace.record_missed_answer(now)
        now += AGAIN_FIRST
    pace.record_missed_answer(now)
    assert not pace.read_retry_request()
    assert pace.compute_retry_wait(20, now + 7200.0, 1.0, urgent=False, part=False) == AGAIN_MAX
    pace.record_packet(AirTurn(is_from_known_station=True), now + 7200.0)
    pace.record_missed_answer(now + 7200.0)
    assert pace.read_retry_request(), "the station was away meanwhile"


def test_unanswered_round_of_fragments_is_retried_at_once_few_times() -> None:
    """A station that we hear, but that does not hear us, gets no endless repetitions."""
    pace = paced((0.0, AirTurn(stations_in_range=1)))
    for tries in range(UNANSWERED_ROUNDS_MAX):
        assert pace.compute_retry_wait(tries, 1.0, 1.0, urgent=False, part=True) == 0.0
    assert (
        pace.compute_retry_wait(UNANSWERED_ROUNDS_MAX, 1.0, 1.0, urgent=False, part=True)
        == AGAIN_FIRST
    )
    assert (
        pace.compute_retry_wait(UNANSWERED_ROUNDS_MAX + 20, 1.0, 1.0, urgent=False, part=True)
        == AGAIN_MAX
    )
    assert pace.compute_retry_wait(0, PRESENT_S + 1, 1.0, urgent=False, part=True) == AGAIN_FIRST


@pytest.mark.parametrize("crowd", [1, CROWD_STATIONS, 30, 100])
def test_answer_wait_grows_with_crowd_except_for_sos_and_fragments(crowd: int) -> None:
    """This does not hold for an SOS or a fragment, which get an immediate answer."""
    pace = paced((0.0, AirTurn(stations_in_range=crowd)))
    soon = pace.compute_answer_wait(0, part=False, urgent=True)
    assert pace.compute_answer_wait(0, part=True) == soon
    assert pace.compute_answer_wait(0, part=False) - soon == pytest.approx(
        compute_ack_wait(crowd) - ACK_WITHIN
    )
    assert (compute_ack_wait(crowd) > ACK_WITHIN) == (crowd > CROWD_STATIONS)
    assert compute_ack_wait(crowd) <= ACK_MOST


@pytest.mark.parametrize("crowd", [1, CROWD_STATIONS, CROWD_STATIONS + 1, 30, 100])
def test_few_stations_of_crowd_send_separate_acks(crowd: int) -> None:
    """The answers come in the second half, so that they may travel in a packet that a station sends
    earlier.
    """
    moments = [compute_lone_wait(number / crowd, crowd) for number in range(crowd)]
    alone = [each for each in moments if each < inf]
    assert all(0 <= each <= compute_ack_wait(crowd) for each in alone)
    if crowd <= CROWD_STATIONS:
        assert len(alone) == crowd
    else:
        assert ANSWERING_STATIONS <= len(alone) < crowd
        assert min(alone) >= compute_ack_wait(crowd) / 2
    if crowd >= 30:
        assert len(alone) <= 2 * ANSWERING_STATIONS
