"""Which other station is two kits under one number, by what comes from it directly. Pure.

The two need not hear each other. Of one kit name and numbers change where it was renamed, has lost
its journal, or writes none as its disk fails, and may go back once: where they go back and forth,
two speak in turn.
"""

from __future__ import annotations

from fieldagent.system.lazy_dataclass import dataclass

APART = 1_000_000
"""Numbers further apart than that are of two journals: each begins at a random one of 2³¹."""
TURNS = 2
WITHIN = 3600.0
"""Seconds in which it goes back each time."""
STATIONS_MAX = 1000


@dataclass(slots=True)
class _Told:
    """What a station said last, and before that."""

    value: int | str
    at: float
    before: int | str | None = None
    before_at: float = 0.0
    turns: int = 0
    """How often in a row it went back."""

    def note(self, value: int | str, now: float) -> bool:
        """Return whether this goes back and forth."""
        if _is_one(self.value, value):
            self.value, self.at = value, now
            return False
        back = self.before is not None and _is_one(self.before, value)
        self.turns = self.turns + 1 if back and now - self.before_at < WITHIN else 0
        self.before, self.before_at = self.value, self.at
        self.value, self.at = value, now
        return self.turns >= TURNS


def _is_one(said: int | str, says: int | str) -> bool:
    if isinstance(said, int) and isinstance(says, int):
        return abs(said - says) <= APART
    return said == says


class Twins:
    """Times are of any one clock."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, type], _Told] = {}

    def note(self, station: int, value: int | str, now: float) -> bool:
        """Note that a station has this name, or sends a new item with this number; return whether
        it is two kits."""
        key = station, type(value)
        known = self._told.pop(key, None)
        is_twin = known is not None and known.note(value, now)
        self._told[key] = known or _Told(value, now)
        while len(self._told) > STATIONS_MAX:
            del self._told[next(iter(self._told))]
        return is_twin
