"""Moments at which something happens to a key, soonest first. Pure.

Entries are plain tuples; one that is not the key's moment any more is dead, and skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

from fieldagent.agent.outbound.swept_heap import SweptHeap

Timer = tuple[float, int]
"""A moment and the key that it is about."""


class Timers:
    """`entries` are the keys' own, and their `place`-th member is the moment that counts."""

    def __init__(self, entries: Mapping[int, Sequence[Any]], place: int) -> None:
        self._entries = entries
        self._place = place
        self._heap = SweptHeap(self._runs)

    def _runs(self, timer: Timer) -> bool:
        entry = self._entries.get(timer[1])
        return entry is not None and entry[self._place] == timer[0]

    def __len__(self) -> int:
        """Return the length of the heap, the dead among them."""
        return len(self._heap)

    def add(self, timer: Timer) -> None:
        """Add a timer; it counts as long as its entry has the same moment."""
        self._heap.push(timer)

    def due(self, now: float) -> Iterator[int]:
        """Yield the keys whose moment has come; their timers are gone."""
        while (timer := self._heap.first()) is not None and timer[0] <= now:
            self._heap.pop()
            yield timer[1]

    def first(self) -> float:
        """Return the next moment; infinity where there is none."""
        timer = self._heap.first()
        return inf if timer is None else timer[0]

    def bound(self, live: int, slack: int) -> None:
        """Keep the dead no more than the living, and the slack."""
        self._heap.bound(live, slack)
