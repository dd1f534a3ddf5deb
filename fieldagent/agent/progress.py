"""Watches whether each important loop makes progress."""

from __future__ import annotations

from collections.abc import Callable

SILENCE_MAX_S = 180.0
"""Longest allowed silence in seconds. This time must be longer than the longest session, including
the modem's own deadline."""


class Progress:
    """Records when each loop last made progress. `clock` is any monotonic clock in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._turned: dict[str, float] = {}

    def watch(self, loop: str) -> Callable[[], None]:
        """Return a function that the loop must call in each iteration."""

        def turn() -> None:
            self._turned[loop] = self._clock()

        turn()
        return turn

    def list_silent_loops(self) -> list[str]:
        """Return the names of the loops that have made no progress for SILENCE_MAX_S."""
        now = self._clock()
        return [loop for loop, at in self._turned.items() if now - at > SILENCE_MAX_S]
