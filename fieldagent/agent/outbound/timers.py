"""Moments at which something happens to a key, soonest first. Pure.

Entries are plain tuples; one that is not the key's moment any more is dead, and skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any

Timer = tuple[float, int]
"""A moment and the key that it is about."""


class Timers:
    """`terms` are the keys' own, and their `place`-th member is the moment that counts."""

    def __init__(self, terms: Mapping[int, Sequence[Any]], place: int) -> None:
        self._terms = terms
        self._place = place
        self._heap: list[Timer] = []

    def _runs(self, timer: Timer) -> bool:
        terms = self._terms.get(timer[1])
        return terms is not None and terms[self._place] == timer[0]

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
            # Without a call for each: there may be very many.
            terms, place, none = self._terms, self._place, (None,) * (self._place + 1)
            live = [each for each in self._heap if terms.get(each[1], none)[place] == each[0]]
            # Once each, and nearly in order still.
            self._heap = list(dict.fromkeys(live))
            heapify(self._heap)
