"""How long a radio was on the air in the hour before, as most bands allow it a share of that."""

from __future__ import annotations

HOUR = 3600.0
_MINUTE = 60.0


class AirTime:
    """Counted in whole minutes, so that an hour of it takes sixty numbers. Times are seconds of
    any one clock."""

    def __init__(self) -> None:
        self._minutes: dict[int, float] = {}

    def note(self, now: float, seconds: float) -> None:
        """The radio was on the air for so long."""
        minute = int(now // _MINUTE)
        self._minutes[minute] = self._minutes.get(minute, 0.0) + seconds

    def spent(self, now: float) -> float:
        """Return the seconds of the last hour, and of the minute in which it began."""
        oldest = int((now - HOUR) // _MINUTE)
        self._minutes = {at: took for at, took in self._minutes.items() if at >= oldest}
        return sum(self._minutes.values())
