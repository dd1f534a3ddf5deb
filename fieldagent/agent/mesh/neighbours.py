"""Which stations are in earshot: who was heard, when, and how well."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from fieldagent.system.lazy_dataclass import dataclass

STATIONS_MAX = 1000
"""Stations that are remembered. Anybody on the air may claim any number of names."""
AWAY_AFTER = 3600.0
"""Seconds after which a station that was not heard is no neighbour any more."""


@dataclass(slots=True)
class HeardStation:
    """What its last packets told of it."""

    heard_at: float = -inf
    rssi: int | None = None
    """In dBm; None where the radio does not tell."""
    snr: int | None = None
    """In dB."""
    callsign: str | None = None
    """As it said it; None where it says none."""
    version: str | None = None
    """Of its program; None where it has not said it."""
    key: int | None = None
    """Which of the group's keys it sends with; None without any."""


class Neighbours:
    """`clock` is lived time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.known: dict[int, HeardStation] = {}
        """Every station that was heard; the one that was heard last is the last."""

    def note(
        self,
        station: int,
        rssi: int | None = None,
        snr: int | None = None,
        key: int | None = None,
    ) -> bool:
        """Note that a station was heard; return whether it had not been in earshot."""
        now = self._clock()
        each = self.known.pop(station, None) or HeardStation()
        returned = now - each.heard_at >= AWAY_AFTER
        each.heard_at, each.rssi, each.snr, each.key = now, rssi, snr, key
        self.known[station] = each
        while len(self.known) > STATIONS_MAX:
            del self.known[next(iter(self.known))]
        return returned

    def note_callsign(self, station: int, callsign: str) -> None:
        """Note the callsign of a station that is known. Raises KeyError for another."""
        self.known[station].callsign = callsign

    def in_earshot(self) -> list[int]:
        """Return the stations that were heard within AWAY_AFTER seconds."""
        now = self._clock()
        return [number for number, each in self.known.items() if now - each.heard_at < AWAY_AFTER]
