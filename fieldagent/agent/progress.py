"""Proof of life: every loop that must turn says so, and one that stays silent is named."""

from __future__ import annotations

from collections.abc import Callable

SILENCE_MAX = 180.0
"""Seconds; longer than the longest session with its modem's own deadline."""


class Progress:
    """`clock` is any steady clock in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._turned: dict[str, float] = {}

    def watch(self, loop: str) -> Callable[[], None]:
        """Return what that loop calls whenever it turns."""

        def turn() -> None:
            self._turned[loop] = self._clock()

        turn()
        return turn

    def silent(self) -> list[str]:
        """List the loops that have not turned for too long."""
        now = self._clock()
        return [loop for loop, at in self._turned.items() if now - at > SILENCE_MAX]
