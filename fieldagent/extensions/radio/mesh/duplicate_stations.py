"""Detects two kits that use the same station number, from the packets that arrive directly from
this station. Pure.

The two kits need not hear each other. The name or the item numbers of a single kit may change,
because the kit is renamed, loses its journal, or cannot write its journal. They may also change
back once. But if they change back and forth, two kits send in turn.
"""

from __future__ import annotations

from fieldagent.system.lazy_dataclass import dataclass

JOURNAL_DISTANCE = 1_000_000
"""Numbers further apart than this are from two journals, because each journal starts at a random
number below 2³¹."""
CHANGES_BACK_MAX = 2
CHANGE_BACK_MAX_S = 3600.0
"""Longest time in seconds between a change and the change back."""
STATIONS_MAX = 1000


@dataclass(slots=True)
class _SentValues:
    """Last and previous value that a station sent."""

    value: int | str
    at: float
    previous_value: int | str | None = None
    previous_at: float = 0.0
    changes_back: int = 0
    """Number of consecutive changes back to the previous value."""

    def record_value(self, value: int | str, now: float) -> bool:
        """Record a value that the station sent. Return True if the values change back and forth."""
        if _is_same_value(self.value, value):
            self.value, self.at = value, now
            return False
        is_earlier_value = self.previous_value is not None and _is_same_value(
            self.previous_value, value
        )
        self.changes_back = (
            self.changes_back + 1
            if is_earlier_value and now - self.previous_at < CHANGE_BACK_MAX_S
            else 0
        )
        self.previous_value, self.previous_at = self.value, self.at
        self.value, self.at = value, now
        return self.changes_back >= CHANGES_BACK_MAX


def _is_same_value(sent_value: int | str, new_value: int | str) -> bool:
    if isinstance(sent_value, int) and isinstance(new_value, int):
        return abs(sent_value - new_value) <= JOURNAL_DISTANCE
    return sent_value == new_value


class DuplicateDetector:
    """Detects two kits with the same station number. All times must be of the same clock."""

    def __init__(self) -> None:
        self._sent_values: dict[tuple[int, type], _SentValues] = {}

    def record_value(self, station: int, value: int | str, now: float) -> bool:
        """Record that a station sent the name `value`, or a new item with the number `value`.
        Return True if two kits use the station's number.
        """
        key = station, type(value)
        earlier = self._sent_values.pop(key, None)
        is_duplicate = earlier is not None and earlier.record_value(value, now)
        self._sent_values[key] = earlier or _SentValues(value, now)
        while len(self._sent_values) > STATIONS_MAX:
            del self._sent_values[next(iter(self._sent_values))]
        return is_duplicate
