"""The shared air: the receivers of each packet, and the seeded randomness."""

from __future__ import annotations

from random import Random

import pytest

from fieldagent.extensions.lab.simulator.air import (
    TURNAROUND_S,
    BadTopology,
    Impairments,
    SharedAir,
    read_topology,
)


def air(**impairments: float) -> SharedAir:
    return SharedAir(Random(7), Impairments(**impairments), 9600.0, [1, 2, 3])


def list_arrivals(shared: SharedAir, until: float = 1e9) -> list[tuple[int, bytes]]:
    arrivals = []
    while (change := shared.find_next_change()) <= until:
        arrivals += shared.remove_arrived(change)
    return arrivals


def test_packet_is_received_by_all_other_stations_after_its_air_time() -> None:
    shared = air()
    ends = shared.transmit(0, 1, b"hello")
    assert ends == pytest.approx(shared.compute_air_time(b"hello"))
    assert shared.remove_arrived(ends - 0.001) == []
    assert shared.remove_arrived(ends) == [(2, b"hello"), (3, b"hello")]
    assert shared.find_next_change() == float("inf")


@pytest.mark.parametrize("apart", [0.0, TURNAROUND_S / 2, 0.05])
def test_overlapping_packets_are_received_by_no_station(apart: float) -> None:
    shared = air()
    shared.transmit(0, 1, b"one" * 20)
    shared.transmit(apart, 2, b"two" * 5)
    assert list_arrivals(shared) == []
    shared.transmit(10, 3, b"alone")
    assert list_arrivals(shared) == [(1, b"alone"), (2, b"alone")]


def test_radio_detects_a_busy_channel_after_the_turnaround() -> None:
    shared = air()
    ends = shared.transmit(0, 1, b"x")
    assert shared.find_busy_end(TURNAROUND_S / 2, 2) == TURNAROUND_S / 2
    assert shared.find_busy_end(TURNAROUND_S, 2) == ends
    assert shared.find_busy_end(ends, 2) == ends


@pytest.mark.parametrize(
    ("impairments", "expected"),
    [
        ({"loss": 1.0}, 0),
        ({"duplicates": 1.0}, 400),
        ({"bit_errors": 1.0}, 0),
        ({"bit_errors": 1.0, "unnoticed": 1.0}, 200),
        ({"loss": 0.5}, range(70, 130)),
        ({"bit_errors": 0.01}, range(60, 120)),
    ],
)
def test_impairments_change_the_number_of_received_packets(
    impairments: dict[str, float], expected: int | range
) -> None:
    shared = air(**impairments)
    packets = []
    for number in range(100):
        shared.transmit(number * 10, 1, b"packet 10b")
        packets += list_arrivals(shared)
    assert len(packets) in (expected if isinstance(expected, range) else [expected])
    if impairments.get("unnoticed"):
        assert all(packet != b"packet 10b" for _, packet in packets)


def test_same_seed_gives_the_same_losses() -> None:
    def run() -> list[tuple[int, bytes]]:
        shared = air(loss=0.3, duplicates=0.3, delay=2.0, bit_errors=0.001)
        for number in range(50):
            shared.transmit(number, 1 + number % 3, bytes([number]) * 9)
        return list_arrivals(shared)

    assert run() == run()


LINE = """
1 2      # a ridge between 1 and 3
2 3 0.5
3 > 1
"""


def make_air_in_line() -> SharedAir:
    shared = air()
    shared.losses = read_topology(LINE, 3)
    return shared


@pytest.mark.parametrize(("sender", "listeners"), [(1, {2}), (2, {1, 3}), (3, {1, 2})])
def test_topology_decides_the_receivers_of_a_packet(sender: int, listeners: set[int]) -> None:
    shared = make_air_in_line()
    stations: set[int] = set()
    for turn in range(100):
        shared.transmit(turn, sender, b"x")
        stations |= {station for station, _ in list_arrivals(shared)}
    assert stations == listeners


def test_topology_decides_the_loss_of_each_path() -> None:
    shared = make_air_in_line()
    for turn in range(200):
        shared.transmit(turn, 2, b"x")
    by_station = [station for station, _ in list_arrivals(shared)]
    assert by_station.count(1) == 200
    assert by_station.count(3) in range(70, 130)


def test_hidden_stations_collide_at_a_common_receiver() -> None:
    shared = air()
    shared.losses = read_topology("1 2\n2 3", 3)
    shared.transmit(0, 1, b"one" * 20)
    assert shared.find_busy_end(0.04, 3) == 0.04, "3 does not know that 1 transmits"
    shared.transmit(0.04, 3, b"three")
    assert list_arrivals(shared) == []
    shared.transmit(10, 1, b"one")
    assert list_arrivals(shared) == [(2, b"one")]


@pytest.mark.parametrize("line", ["1", "1 4", "1 1", "1 2 1.5", "1 2 0.1 3", "a b", "0 1", "> 1"])
def test_topology_error_is_reported_with_its_line(line: str) -> None:
    with pytest.raises(BadTopology, match=r"^line 2, "):
        read_topology(f"1 2\n{line}", 3)
