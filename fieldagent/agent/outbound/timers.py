"""Times of keys, soonest first. Pure.

Entries are plain tuples; a timer that no longer equals its key's time is dead and is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

from fieldagent.agent.outbound.swept_heap import SweptHeap

Timer = tuple[float, int]
"""A time and its key."""


class Timers:
    """Timers of keys. `entries` are the keys' tuples; the member at `place` is the valid time."""

    def __init__(self, entries: Mapping[int, Sequence[Any]], place: int) -> None:
        self._entries = entries
        self._place = place
        self._heap = SweptHeap(self._runs)

    def _runs(self, timer: Timer) -> bool:
        entry = self._entries.get(timer[1])
        return entry is not None and entry[self._place] == timer[0]

    def __len__(self) -> int:
        """Return the length of the heap, including dead timers."""
        return len(self._heap)

    def add(self, timer: Timer) -> None:
        """Add a timer; it is valid as long as its entry has the same time."""
        self._heap.push(timer)

    def due(self, now: float) -> Iterator[int]:
        """Yield the keys whose time has come, and remove their timers."""
        while (timer := self._heap.first()) is not None and timer[0] <= now:
            self._heap.pop()
            yield timer[1]

    def first(self) -> float:
        """Return the next time; infinity if there is none."""
        timer = self._heap.first()
        return inf if timer is None else timer[0]

    def bound(self, live: int, slack: int) -> None:
        """Limit the number of dead timers to that of live ones plus `slack`."""
        self._heap.bound(live, slack)
