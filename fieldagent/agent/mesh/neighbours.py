"""Which stations are in earshot: who was heard, and when."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

STATIONS_MAX = 1000
"""Stations that are remembered. Anybody on the air may claim any number of names."""
AWAY_AFTER = 3600.0
"""Seconds after which a station that was not heard is no neighbour any more."""


class Neighbours:
    """`clock` is lived time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.heard_at: dict[int, float] = {}
        """Every station that was heard, with the time of the last packet; that one last."""

    def note(self, station: int) -> bool:
        """It was heard; whether it had not been in earshot."""
        now = self._clock()
        returned = now - self.heard_at.pop(station, -inf) >= AWAY_AFTER
        self.heard_at[station] = now
        while len(self.heard_at) > STATIONS_MAX:
            del self.heard_at[next(iter(self.heard_at))]
        return returned

    def in_earshot(self) -> list[int]:
        now = self._clock()
        return [each for each, at in self.heard_at.items() if abs(now - at) < AWAY_AFTER]
