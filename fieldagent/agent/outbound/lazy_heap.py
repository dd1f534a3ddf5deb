"""Heap that removes its dead entries a few at a time. Pure.

Rebuilding a heap of 90 000 entries at once would block the queue for a tenth of a second. So if
there are too many dead entries, a gradual sweep begins, and the present heap becomes the old heap.
Each operation then takes some entries from the end of the old heap, and moves the live ones to a
new heap. The rest of the old heap is still a heap, because its last entry has no children.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

Entry = TypeVar("Entry", bound=tuple[Any, ...])

SWEEP_STEP_ENTRIES = 24
"""Number of entries that one operation moves. The number is large enough that a sweep ends before
half of all entries can be dead."""


class SweptHeap(Generic[Entry]):
    """Heap that removes its dead entries gradually. `is_live` returns True if an entry is live."""

    def __init__(self, is_live: Callable[[Entry], bool]) -> None:
        self._lives = is_live
        self._heap: list[Entry] = []
        self._old: list[Entry] = []
        self._moved: set[Entry] = set()
        """Entries that were moved in this sweep. An entry that occurs twice in the old heap is
        moved once."""

    def __len__(self) -> int:
        """Return the number of live and dead entries."""
        return len(self._heap) + len(self._old)

    def push(self, entry: Entry) -> None:
        heappush(self._heap, entry)

    def find_first(self) -> Entry | None:
        """Return the smallest live entry, or None. Remove the dead entries before it."""
        heap = self._find_foremost()
        return heap[0] if heap else None

    def pop(self) -> Entry | None:
        """Remove and return the entry that `find_first` returns."""
        heap = self._find_foremost()
        return heappop(heap) if heap else None

    def _find_foremost(self) -> list[Entry]:
        """Return the heap whose first entry is the smallest live entry. If there is no live entry,
        return an empty heap.
        """
        for heap in (self._heap, self._old):
            while heap and not self._lives(heap[0]):
                heappop(heap)
        if self._heap and (not self._old or self._heap[0] <= self._old[0]):
            return self._heap
        return self._old

    def _trim(self) -> bool:
        """Remove dead entries from the end of the heap's list, where this moves no other entry.
        Return True if SWEEP_STEP_ENTRIES entries were removed.
        """
        for _ in range(SWEEP_STEP_ENTRIES):
            if not self._heap or self._lives(self._heap[-1]):
                return False
            self._heap.pop()
        return True

    def limit_size(self, live_count: int, slack: int) -> None:
        """Limit the heap to twice `live_count` entries plus `slack`. Call this function after each
        operation.
        """
        if not self._old:
            if 2 * len(self._heap) <= 3 * live_count + slack or self._trim():
                return
            self._heap, self._old = self._old, self._heap
        for _ in range(min(SWEEP_STEP_ENTRIES, len(self._old))):
            entry = self._old.pop()
            if self._lives(entry) and entry not in self._moved:
                self._moved.add(entry)
                heappush(self._heap, entry)
        if not self._old:
            self._moved.clear()
