"""Table of the stations in range: when each was last heard, and how strong its signal was."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from fieldagent.system.lazy_dataclass import dataclass

STATIONS_MAX = 1000
"""Maximum number of stations that are remembered. The number is limited because one sender can
claim to be many stations."""
AWAY_AFTER_S = 3600.0
"""Seconds without a packet after which a station is no longer a neighbour."""


@dataclass(slots=True)
class NeighbourFacts:
    """Facts about a station from its last packets."""

    heard_at: float = -inf
    rssi: int | None = None
    """Signal strength in dBm. None if the radio does not report it."""
    snr: int | None = None
    """Signal-to-noise ratio in dB. None if unknown."""
    callsign: str | None = None
    """Callsign that the station transmitted. None if it has not transmitted any."""
    version: str | None = None
    """Version of the station's program. None if unknown."""
    key: int | None = None
    """Index of the group key with which the station sends. None if the group has no key."""


class Neighbours:
    """Table of the stations that were heard. `clock` is elapsed time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.known: dict[int, NeighbourFacts] = {}
        """All stations that were heard, ordered by the time of their last packet, newest last."""

    def record_packet(
        self,
        station: int,
        rssi: int | None = None,
        snr: int | None = None,
        key: int | None = None,
    ) -> bool:
        """Record that a station was heard. Return True if the station was not in range before."""
        now = self._clock()
        each = self.known.pop(station, None) or NeighbourFacts()
        returned = now - each.heard_at >= AWAY_AFTER_S
        each.heard_at, each.rssi, each.snr, each.key = now, rssi, snr, key
        self.known[station] = each
        while len(self.known) > STATIONS_MAX:
            del self.known[next(iter(self.known))]
        return returned

    def record_callsign(self, station: int, callsign: str) -> None:
        """Record the callsign of a known station. Raises KeyError for an unknown station."""
        self.known[station].callsign = callsign

    def list_in_range(self) -> list[int]:
        """Return the stations that were heard within AWAY_AFTER_S."""
        now = self._clock()
        return [number for number, each in self.known.items() if now - each.heard_at < AWAY_AFTER_S]
