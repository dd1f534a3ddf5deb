"""Limits log lines about events that may happen a thousand times a minute."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

EVERY = 60.0
"""Seconds between two lines about the same event."""


class Seldom:
    """Counter of one kind of event. `clock` is any steady clock in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told = -inf
        self._since = 0

    def note(self) -> int:
        """Count an event. Returns the number of events since the last line if a new line is due,
        else 0.
        """
        self._since += 1
        if self._clock() - self._told < EVERY:
            return 0
        self._told = self._clock()
        count, self._since = self._since, 0
        return count
