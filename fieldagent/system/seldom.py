"""Keeps what may happen a thousand times a minute from filling the log."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

EVERY = 60.0
"""Seconds between two lines about the same."""


class Seldom:
    """Counts one kind of event. `clock` is any steady clock in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told = -inf
        self._since = 0

    def note(self) -> int:
        """Note that it happened. Return how often since the last line, where another line is due;
        else 0."""
        self._since += 1
        if self._clock() - self._told < EVERY:
            return 0
        self._told = self._clock()
        count, self._since = self._since, 0
        return count
