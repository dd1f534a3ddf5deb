"""One channel's queue: priority first, first come first served within it.

Pure: it reads no clock (`now` and other times are seconds of any one clock) and does no I/O. Every
operation costs O(log n). Entries of the heaps are plain tuples; one that the index no longer
agrees with is dead and skipped, and a heap of more than twice the live entries plus 64 is rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple, TypeVar

SLACK = 64

Entry = TypeVar("Entry", bound=tuple[float, ...])


class _Place(NamedTuple):
    priority: int
    order: int
    """Age: the smaller goes first among equals."""
    collapse: tuple[int, bool] | None
    """The collapseKey, and whether its Package is an SOS."""
    expires: float
    due: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the bound on memory is about; `heaps` holds the length of each heap."""

    live: int
    heaps: tuple[int, ...]


class Queue:
    """Keys are integers that grow with each Package. A key is waiting, taken, or unknown."""

    def __init__(self) -> None:
        self._places: dict[int, _Place] = {}
        self._taken: set[int] = set()
        self._due: dict[int, int] = {}
        """What is due and not taken, with its order: the entry of the heap that lives."""
        self._newest: dict[tuple[int, bool], int] = {}
        self._ready: list[tuple[int, int, int]] = []
        self._delayed: list[tuple[float, int]] = []
        self._expiries: list[tuple[float, int]] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: int) -> bool:
        return key in self._places

    def add(
        self,
        key: int,
        *,
        priority: int,
        collapse_key: int | None = None,
        sos: bool = False,
        expires: float = inf,
        due: float = -inf,
    ) -> list[int]:
        """Append a Package; returns those that it replaces, which are forgotten here.

        The newer takes the older one's place when their priority is equal. A taken one is not
        recalled: `put_back` tells. An SOS yields to another SOS only.
        """
        self._order += 1
        if collapse_key is None:
            place = _Place(priority, self._order, None, expires, due)
            self._insert(key, place)
            return []
        place = _Place(priority, self._order, (collapse_key, sos), expires, due)
        replaced = []
        for scope in [(collapse_key, False), (collapse_key, True)][: 1 + sos]:
            older = self._newest.get(scope)
            if older is not None and older not in self._taken:
                place = self._inherit(place, self._places[older])
                self.remove(older)
                replaced.append(older)
        self._newest[(collapse_key, sos)] = key
        self._insert(key, place)
        return replaced

    @staticmethod
    def _inherit(newer: _Place, older: _Place) -> _Place:
        if newer.priority != older.priority:
            return newer
        return newer._replace(order=min(newer.order, older.order), due=max(newer.due, older.due))

    def _insert(self, key: int, place: _Place) -> None:
        self._places[key] = place
        if place.due > -inf:
            self._due.pop(key, None)
            heappush(self._delayed, (place.due, key))
        else:
            self._due[key] = place.order
            heappush(self._ready, (-place.priority, place.order, key))
        if place.expires < inf:
            heappush(self._expiries, (place.expires, key))
        self._bound()

    def foremost(self, now: float) -> int | None:
        """What `take` would take."""
        if self._delayed:
            self._promote(now)
        ready, due = self._ready, self._due
        while ready:
            _, order, key = ready[0]
            if due.get(key) == order:
                return key
            heappop(ready)
        return None

    def take(self, now: float) -> int | None:
        """The most urgent Package that is due; it is the taker's until put_back or remove."""
        key = self.foremost(now)
        if key is not None:
            heappop(self._ready)
            del self._due[key]
            self._taken.add(key)
        return key

    def put_back(self, key: int, due: float = -inf) -> bool:
        """It was not sent: it waits in its old place, until `due`.

        False when a newer Package has its collapseKey by now: that one gets the place, and `key`
        is forgotten.
        """
        place = self._places[key]._replace(due=due)
        self._taken.discard(key)
        newer = self._superseded_by(key, place)
        if newer is None:
            self._insert(key, place)
            return True
        self.remove(key)
        if newer not in self._taken:
            self._insert(newer, self._inherit(self._places[newer], place))
        return False

    def _superseded_by(self, key: int, place: _Place) -> int | None:
        if place.collapse is None:
            return None
        collapse_key, sos = place.collapse
        rivals = [self._newest.get((collapse_key, True))]
        if not sos:
            rivals.append(self._newest.get((collapse_key, False)))
        return max((rival for rival in rivals if rival is not None and rival > key), default=None)

    def remove(self, key: int) -> bool:
        """It ended: sent, failed or canceled. False when it is not here."""
        place = self._places.pop(key, None)
        if place is None:
            return False
        self._taken.discard(key)
        self._due.pop(key, None)
        if place.collapse is not None and self._newest.get(place.collapse) == key:
            del self._newest[place.collapse]
        self._bound()
        return True

    def hold(self, key: int) -> None:
        """Make a waiting key a taken one: its transmission began before the program did."""
        self._due.pop(key, None)
        self._taken.add(key)

    def priority(self, key: int) -> int:
        return self._places[key].priority

    def keys(self) -> list[int]:
        return list(self._places)

    def is_taken(self, key: int) -> bool:
        return key in self._taken

    def expire(self, now: float) -> list[int]:
        """Forget and return what has outlived its time; a taken one is left until put back."""
        ended = []
        while self._expiries and self._expiries[0][0] <= now:
            expires, key = heappop(self._expiries)
            place = self._places.get(key)
            if place is not None and place.expires == expires and key not in self._taken:
                self.remove(key)
                ended.append(key)
        return ended

    def next_event(self, now: float) -> float:
        """When something becomes due or expires: `now` if something is due, inf if nothing will."""
        if self.foremost(now) is not None:
            return now
        return self.next_change(now)

    def next_change(self, now: float) -> float:
        """When the next one that waits becomes due or expires, whatever is due already."""
        self._promote(now)
        return min(self._first(self._delayed), self._first(self._expiries))

    def sizes(self) -> Sizes:
        heaps = (self._ready, self._delayed, self._expiries)
        return Sizes(len(self._places), tuple(len(heap) for heap in heaps))

    def _is_ready(self, entry: tuple[int, int, int]) -> bool:
        return self._due.get(entry[2]) == entry[1]

    def _is_timed(self, entry: tuple[float, int]) -> bool:
        place = self._places.get(entry[1])
        return place is not None and entry[0] in (place.due, place.expires)

    def _promote(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            due, key = heappop(self._delayed)
            place = self._places.get(key)
            if place is not None and place.due == due and key not in self._taken:
                self._places[key] = place._replace(due=-inf)
                self._due[key] = place.order
                heappush(self._ready, (-place.priority, place.order, key))

    def _first(self, heap: list[tuple[float, int]]) -> float:
        while heap and not self._is_timed(heap[0]):
            heappop(heap)
        return heap[0][0] if heap else inf

    def _bound(self) -> None:
        most = 2 * len(self._places) + SLACK
        if len(self._ready) > most:
            _rebuild(self._ready, self._is_ready)
        for heap in (self._delayed, self._expiries) if self._delayed or self._expiries else ():
            if len(heap) > most:
                _rebuild(heap, self._is_timed)


def _rebuild(heap: list[Entry], lives: Callable[[Entry], bool]) -> None:
    heap[:] = {entry for entry in heap if lives(entry)}
    heapify(heap)
