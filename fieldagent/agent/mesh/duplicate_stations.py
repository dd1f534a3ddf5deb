"""Detects two kits that use one station number, from the packets received directly from it. Pure.

The two kits need not hear each other. A single kit's name and numbers change when it is renamed,
loses its journal, or cannot write it. They may also change back once. If they change back and
forth, two kits are sending in turn.
"""

from __future__ import annotations

from fieldagent.system.lazy_dataclass import dataclass

JOURNAL_DISTANCE = 1_000_000
"""Numbers further apart than this are from two journals, because each journal starts at a random
number below 2³¹."""
CHANGES_BACK_MAX = 2
CHANGE_BACK_MAX_S = 3600.0
"""Seconds within which each change back must follow."""
STATIONS_MAX = 1000


@dataclass(slots=True)
class _SentValues:
    """Last and previous value that a station sent."""

    value: int | str
    at: float
    previous_value: int | str | None = None
    previous_at: float = 0.0
    changes_back: int = 0
    """Number of changes back in a row."""

    def note(self, value: int | str, now: float) -> bool:
        """Return True if the values change back and forth."""
        if _is_one(self.value, value):
            self.value, self.at = value, now
            return False
        back = self.previous_value is not None and _is_one(self.previous_value, value)
        self.changes_back = (
            self.changes_back + 1 if back and now - self.previous_at < CHANGE_BACK_MAX_S else 0
        )
        self.previous_value, self.previous_at = self.value, self.at
        self.value, self.at = value, now
        return self.changes_back >= CHANGES_BACK_MAX


def _is_one(said: int | str, says: int | str) -> bool:
    if isinstance(said, int) and isinstance(says, int):
        return abs(said - says) <= JOURNAL_DISTANCE
    return said == says


class DuplicateDetector:
    """Detector of twins. Times are of any one clock."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, type], _SentValues] = {}

    def note(self, station: int, value: int | str, now: float) -> bool:
        """Record that a station has this name, or sent a new item with this number. Return True if
        it is two kits.
        """
        key = station, type(value)
        known = self._told.pop(key, None)
        is_twin = known is not None and known.note(value, now)
        self._told[key] = known or _SentValues(value, now)
        while len(self._told) > STATIONS_MAX:
            del self._told[next(iter(self._told))]
        return is_twin
