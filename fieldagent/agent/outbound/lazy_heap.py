"""A heap whose dead entries are removed a few at a time. Pure.

Rebuilding it at once would block a queue of 90 000 entries for a tenth of a second. So if there are
too many dead entries, the heap becomes the old heap. Each operation then moves the live ones among
some of its last entries to a new heap. The rest is still a heap, because its last entry has no
children.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

Entry = TypeVar("Entry", bound=tuple[Any, ...])

STEP = 24
"""Entries that one operation moves: a sweep ends before the dead entries can be half of all."""


class SweptHeap(Generic[Entry]):
    """Heap with gradual removal. `lives` returns True if an entry still counts."""

    def __init__(self, lives: Callable[[Entry], bool]) -> None:
        self._lives = lives
        self._heap: list[Entry] = []
        self._old: list[Entry] = []
        self._moved: set[Entry] = set()
        """Entries moved in this sweep: an entry that occurs twice is moved once."""

    def __len__(self) -> int:
        """Return the number of live and dead entries."""
        return len(self._heap) + len(self._old)

    def push(self, entry: Entry) -> None:
        """Add an entry; the smallest is at the head."""
        heappush(self._heap, entry)

    def find_first(self) -> Entry | None:
        """Return the smallest live entry, or None; dead entries before it are removed."""
        heap = self._find_foremost()
        return heap[0] if heap else None

    def pop(self) -> Entry | None:
        """Remove and return the entry that `find_first` returns."""
        heap = self._find_foremost()
        return heappop(heap) if heap else None

    def _find_foremost(self) -> list[Entry]:
        """Return the heap, of the two, that has the smallest live entry at its head; an empty one
        if there is none.
        """
        for heap in (self._heap, self._old):
            while heap and not self._lives(heap[0]):
                heappop(heap)
        if self._heap and (not self._old or self._heap[0] <= self._old[0]):
            return self._heap
        return self._old

    def _trim(self) -> bool:
        """Remove the last entries while they are dead, which moves no other. Return True if a whole
        step of a sweep was removed.
        """
        for _ in range(STEP):
            if not self._heap or self._lives(self._heap[-1]):
                return False
            self._heap.pop()
        return True

    def bound(self, live: int, slack: int) -> None:
        """Limit the heap to twice `live` entries plus `slack`; call it after each operation."""
        if not self._old:
            if 2 * len(self._heap) <= 3 * live + slack or self._trim():
                return
            self._heap, self._old = self._old, self._heap
        for _ in range(min(STEP, len(self._old))):
            entry = self._old.pop()
            if self._lives(entry) and entry not in self._moved:
                self._moved.add(entry)
                heappush(self._heap, entry)
        if not self._old:
            self._moved.clear()
