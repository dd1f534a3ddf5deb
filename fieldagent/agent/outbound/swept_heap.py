"""A heap whose dead entries are dropped a few at a time. Pure.

To build it anew at once would hold a queue of 90 000 up for a tenth of a second. Where too many
are dead it becomes the old one instead, and each operation moves the living among some of its last
entries into a new one: what is left is a heap still, as its last entry has none below it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

Entry = TypeVar("Entry", bound=tuple[Any, ...])

STEP = 24
"""Entries that one operation moves: a sweep is over before the dead can be half of all."""


class SweptHeap(Generic[Entry]):
    """`lives` tells whether an entry still counts."""

    def __init__(self, lives: Callable[[Entry], bool]) -> None:
        self._lives = lives
        self._heap: list[Entry] = []
        self._old: list[Entry] = []
        self._moved: set[Entry] = set()
        """In this sweep: an entry that is there twice is moved once."""

    def __len__(self) -> int:
        """Return those that live, and the dead among them."""
        return len(self._heap) + len(self._old)

    def push(self, entry: Entry) -> None:
        """Add an entry; the least is at the head."""
        heappush(self._heap, entry)

    def first(self) -> Entry | None:
        """Return the smallest that lives; the dead before it are gone."""
        heap = self._foremost()
        return heap[0] if heap else None

    def pop(self) -> Entry | None:
        """Take out what `first` returns, and return it."""
        heap = self._foremost()
        return heappop(heap) if heap else None

    def _foremost(self) -> list[Entry]:
        """That of both heaps with the smallest entry that lives; an empty one where none does."""
        for heap in (self._heap, self._old):
            while heap and not self._lives(heap[0]):
                heappop(heap)
        if self._heap and (not self._old or self._heap[0] <= self._old[0]):
            return self._heap
        return self._old

    def _trimmed(self) -> bool:
        """Drop the last entries while they are dead, which moves no other; return whether that was
        as many as a step of a sweep."""
        for _ in range(STEP):
            if not self._heap or self._lives(self._heap[-1]):
                return False
            self._heap.pop()
        return True

    def bound(self, live: int, slack: int) -> None:
        """Limit the heap to twice `live` entries and the `slack`; called after each operation."""
        if not self._old:
            if 2 * len(self._heap) <= 3 * live + slack or self._trimmed():
                return
            self._heap, self._old = self._old, self._heap
        for _ in range(min(STEP, len(self._old))):
            entry = self._old.pop()
            if self._lives(entry) and entry not in self._moved:
                self._moved.add(entry)
                heappush(self._heap, entry)
        if not self._old:
            self._moved.clear()
