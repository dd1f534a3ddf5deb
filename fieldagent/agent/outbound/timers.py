"""Moments at which something happens to a key, soonest first. Pure.

Entries are plain tuples; one that `runs` no longer knows is dead, and skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from math import inf

Timer = tuple[float, int]
"""A moment and the key that it is about."""


class Timers:
    def __init__(self, runs: Callable[[Timer], bool]) -> None:
        self._runs = runs
        self._heap: list[Timer] = []

    def __len__(self) -> int:
        """Of the heap, the dead among them."""
        return len(self._heap)

    def add(self, timer: Timer) -> None:
        heappush(self._heap, timer)

    def due(self, now: float) -> Iterator[int]:
        """The keys whose moment has come; their timers are gone."""
        while self._heap and self._heap[0][0] <= now:
            timer = heappop(self._heap)
            if self._runs(timer):
                yield timer[1]

    def first(self) -> float:
        """The next moment; infinity where there is none."""
        while self._heap and not self._runs(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else inf

    def bound(self, most: int) -> None:
        """Drop the dead once there are more than so many entries."""
        if len(self._heap) > most:
            self._heap = list({timer for timer in self._heap if self._runs(timer)})
            heapify(self._heap)
