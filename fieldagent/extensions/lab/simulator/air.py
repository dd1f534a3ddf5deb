"""A radio channel that several radios share: half-duplex, slow and lossy. No I/O, with seeded
random numbers.

A radio hears nothing while it transmits. If two stations in a listener's range transmit at the same
time, the listener hears neither of them.
"""

from __future__ import annotations

from dataclasses import field
from heapq import heappop, heappush
from itertools import permutations
from math import inf
from random import Random

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

TURNAROUND_S = 0.005
"""Seconds during which other radios do not notice that a transmission has begun."""
PREAMBLE_S = 0.05
"""Seconds of preamble before the first byte."""


@dataclass(slots=True)
class Impairments:
    """Possible failures on the channel. Failures are independent of each other and happen
    separately for each listener. Probabilities are from 0 to 1.
    """

    loss: float = 0.0
    duplicates: float = 0.0
    bit_errors: float = 0.0
    """Probability that a bit is flipped. If the radio's own checksum detects the error, the radio
    drops the packet."""
    unnoticed: float = 0.0
    """Probability that the checksum does not detect an error."""
    delay: float = 0.0
    """Largest random additional delay of a packet in seconds."""


Losses = dict[tuple[int, int], float]
"""Probability that a packet is lost, by transmitter and listener. If there is no value for a pair,
the listener is out of range."""


class BadTopology(ValueError):
    """Error in a topology. The text is for people."""


def read_topology(text: str, count: int) -> Losses:
    """Parse lines such as `1 2`, `2 3 0.3` (probability of loss) and `3 > 4` (one way). A comment
    begins with #.

    If no line connects two nodes, they do not hear each other. Raises BadTopology.
    """
    losses: Losses = {}
    for number, line in enumerate(text.splitlines(), 1):
        line_words = line.partition("#")[0].split()
        one_way = ">" in line_words
        stations = [line_word for line_word in line_words if line_word != ">"]
        try:
            if line_words:
                first, other, loss = int(stations[0]), int(stations[1]), float((*stations, "0")[2])
                if {first, other} - {*range(1, count + 1)} or first == other or not 0 <= loss <= 1:
                    raise ValueError
                if len(stations) > 3:
                    raise ValueError
                losses[first, other] = loss
                if not one_way:
                    losses[other, first] = loss
        except (ValueError, IndexError):
            raise BadTopology(
                f"line {number}, {line.strip()!r}: two of the nodes 1 to {count}, with > between"
                " where one alone hears the other, and a chance of loss from 0 to 1 if any"
            ) from None
    return losses


class _Flight(NamedTuple):
    begins: float
    ends: float
    station: int
    packet: bytes


class _Arrival(NamedTuple):
    at: float
    order: int
    station: int
    packet: bytes


@dataclass(slots=True)
class BurstLosses:
    """Losses in bursts, as behind a hill (Gilbert-Elliott model). Each pair of stations loses all
    packets during a `share` of the time. The mean duration of a burst is `seconds`.
    """

    share: float
    seconds: float
    random: Random
    _until: dict[tuple[int, int], tuple[float, bool]] = field(default_factory=dict)

    def is_faded(self, one: int, other: int, now: float) -> bool:
        """Return True if the two stations lose all packets at the time `now`, in both directions.
        `now` must not decrease between calls.
        """
        pair = min(one, other), max(one, other)
        until, fading = self._until.get(pair, (now, self.random.random() > self.share))
        while until <= now:
            fading = not fading
            mean = self.seconds if fading else self.seconds * (1 - self.share) / self.share
            until += self.random.expovariate(1 / mean)
        self._until[pair] = until, fading
        return fading


@dataclass(slots=True)
class SharedAir:
    """Shared radio channel. Times are in seconds of one clock. `stations` are the numbers of the
    radios. If `losses` is not given, all radios are in range of each other.
    """

    random: Random
    impairments: Impairments = field(default_factory=Impairments)
    bitrate: float = 9600.0
    stations: list[int] = field(default_factory=list)
    losses: Losses | None = None
    packet_bytes: int = 255
    """Size in bytes of the largest packet that a radio transmits."""
    preamble: float = PREAMBLE_S
    turnaround: float = TURNAROUND_S
    """Seconds during which a radio does not notice that another transmission has begun."""
    fades: BurstLosses | None = None
    away: set[int] = field(default_factory=set)
    """Stations that are out of range of all other stations."""
    flights: list[_Flight] = field(default_factory=list)
    """Packets on the air."""
    _ended_flights: list[_Flight] = field(default_factory=list)
    _arrivals: list[_Arrival] = field(default_factory=list)
    _order: int = 0

    def compute_air_time(self, packet: bytes) -> float:
        """Return the airtime of a packet in seconds, including the preamble."""
        return self.preamble + len(packet) * 8 / self.bitrate

    def is_audible(self, station: int, listener: int) -> bool:
        """Return True if the listener is in range of the station, however lossy the path is."""
        if station in self.away or listener in self.away:
            return False
        return self.losses is None or (station, listener) in self.losses

    def move(self, one: int, other: int, loss: float | None) -> None:
        """Set the loss between two stations in both directions. If `loss` is None, they are out of
        range.
        """
        if self.losses is None:
            self.losses = dict.fromkeys(permutations(self.stations, 2), 0.0)
        for direction in ((one, other), (other, one)):
            if loss is None:
                self.losses.pop(direction, None)
            else:
                self.losses[direction] = loss

    def find_busy_end(self, now: float, listener: int) -> float:
        """Return the time when the transmissions end that a radio notices. If the channel is free,
        return `now`.
        """
        noticed = [
            flight.ends
            for flight in self.flights
            if flight.begins + self.turnaround <= now < flight.ends
            and self.is_audible(flight.station, listener)
        ]
        return max(noticed, default=now)

    def transmit(self, now: float, station: int, packet: bytes) -> float:
        """Transmit a packet and return the time when the transmission ends."""
        flight = _Flight(now, now + self.compute_air_time(packet), station, packet)
        self.flights.append(flight)
        return flight.ends

    def find_next_change(self) -> float:
        """Return the time when the next packet ends or arrives, or infinity if there is none."""
        next_end = min((flight.ends for flight in self.flights), default=inf)
        return min(next_end, self._arrivals[0].at if self._arrivals else inf)

    def remove_arrived(self, now: float) -> list[tuple[int, bytes]]:
        """Remove the packets that have arrived by `now`. Return the receiving station and the bytes
        of each packet, in the order of arrival.
        """
        for flight in sorted(self.flights, key=lambda each: each.ends):
            if flight.ends <= now:
                self._finish_flight(flight)
        # Keep packets that have ended and overlap a packet that is still on the air, because the
        # two may have collided.
        earliest = min((flight.begins for flight in self.flights), default=inf)
        self._ended_flights = [flight for flight in self._ended_flights if flight.ends > earliest]
        arrived_flights = []
        while self._arrivals and self._arrivals[0].at <= now:
            arrival = heappop(self._arrivals)
            arrived_flights.append((arrival.station, arrival.packet))
        return arrived_flights

    def _finish_flight(self, flight: _Flight) -> None:
        self.flights.remove(flight)
        rivals = [
            other
            for other in (*self.flights, *self._ended_flights)
            if other.begins < flight.ends and flight.begins < other.ends
        ]
        self._ended_flights.append(flight)
        for listener in self.stations:
            if listener == flight.station or not self.is_audible(flight.station, listener):
                continue
            # A station that transmits hears nothing.
            if not any(
                rival.station == listener or self.is_audible(rival.station, listener)
                for rival in rivals
            ):
                self._carry(flight, listener)

    def _carry(self, flight: _Flight, station: int) -> None:
        copies = 1 + (self.random.random() < self.impairments.duplicates)
        for _ in range(copies):
            packet = self._disturb(flight.packet)
            direction = (flight.station, station)
            arrival_share = (1 - self.impairments.loss) * (
                1 - (self.losses or {}).get(direction, 0.0)
            )
            if self.fades is not None and self.fades.is_faded(*direction, flight.ends):
                continue
            if packet is not None and self.random.random() < arrival_share:
                self._order += 1
                at = flight.ends + self.random.random() * self.impairments.delay
                heappush(self._arrivals, _Arrival(at, self._order, station, packet))

    def _disturb(self, packet: bytes) -> bytes | None:
        bits = len(packet) * 8
        if not self.impairments.bit_errors:
            return packet
        if self.random.random() < (1 - self.impairments.bit_errors) ** bits:
            return packet
        if self.random.random() >= self.impairments.unnoticed:
            return None
        damaged = bytearray(packet)
        bit = self.random.randrange(bits)
        damaged[bit // 8] ^= 1 << bit % 8
        return bytes(damaged)
