"""One channel's queue: priority first, first come first served within it.

Pure: it reads no clock (`now` and other times are seconds of any one clock) and does no I/O. Every
operation costs O(log n). Entries of the heaps are plain tuples; one that the index no longer
holds is dead and skipped, and a heap of more than twice the live entries plus 64 is rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple, TypeVar

SLACK = 64

Place = tuple[int, int, int]
"""Negated priority, order (the smaller goes first among equals), key."""
Timer = tuple[float, int]
"""A time and the key that it is about."""
HeapEntry = TypeVar("HeapEntry", bound=tuple[float, ...])


class _Terms(NamedTuple):
    """What most Packages have none of."""

    collapse: tuple[int, bool] | None = None
    """The collapseKey, and whether its Package is an SOS."""
    expires: float = inf
    due: float = -inf


_PLAIN = _Terms()


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the bound on memory is about; `heaps` holds the length of each heap."""

    live: int
    heaps: tuple[int, ...]


class Queue:
    """Keys are integers that grow with each Package. A key is waiting, taken, or unknown."""

    def __init__(self) -> None:
        self._places: dict[int, Place] = {}
        """Of every key that lives: the very tuple that stands, or will stand, in `_ready`."""
        self._terms: dict[int, _Terms] = {}
        self._taken: set[int] = set()
        self._newest: dict[tuple[int, bool], int] = {}
        self._ready: list[Place] = []
        self._delayed: list[Timer] = []
        self._expiries: list[Timer] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: int) -> bool:
        return key in self._places

    def keys(self) -> list[int]:
        return list(self._places)

    def priority(self, key: int) -> int:
        return -self._places[key][0]

    def place(self, key: int) -> Place:
        """The smaller goes first."""
        return self._places[key]

    def is_taken(self, key: int) -> bool:
        return key in self._taken

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
        place = (-priority, self._order, key)
        if collapse_key is None and expires == inf and due == -inf:
            # One live entry more cannot break the bound.
            self._places[key] = place
            heappush(self._ready, place)
            return []
        collapse = None if collapse_key is None else (collapse_key, sos)
        terms = _Terms(collapse, expires, due)
        replaced = self._replaceable(collapse)
        for older in replaced:
            place, terms = self._inherit(place, terms, older)
            self.remove(older)
        if collapse is not None:
            self._newest[collapse] = key
        self._insert(place, terms)
        return replaced

    def _replaceable(self, collapse: tuple[int, bool] | None) -> list[int]:
        if collapse is None:
            return []
        collapse_key, sos = collapse
        newest = [self._newest.get((collapse_key, kind)) for kind in [False, True][: 1 + sos]]
        return [key for key in newest if key is not None and key not in self._taken]

    def _inherit(self, place: Place, terms: _Terms, older: int) -> tuple[Place, _Terms]:
        priority, order, key = place
        older_priority, older_order, _ = self._places[older]
        if priority != older_priority:
            return place, terms
        due = max(terms.due, self._terms.get(older, _PLAIN).due)
        return (priority, min(order, older_order), key), terms._replace(due=due)

    def _insert(self, place: Place, terms: _Terms) -> None:
        key = place[2]
        self._places[key] = place
        self._terms[key] = terms
        if terms.due > -inf:
            heappush(self._delayed, (terms.due, key))
        else:
            heappush(self._ready, place)
        if terms.expires < inf:
            heappush(self._expiries, (terms.expires, key))
        self._bound()

    def foremost(self, now: float) -> int | None:
        """What `take` would take."""
        self._promote(now)
        ready = self._ready
        while ready:
            if self._stands(ready[0]):
                return ready[0][2]
            heappop(ready)
        return None

    def take(self, now: float) -> int | None:
        """The most urgent Package that is due; it is the taker's until put_back or remove."""
        if self._delayed:
            self._promote(now)
        ready, places, taken = self._ready, self._places, self._taken
        while ready:
            place = heappop(ready)
            key = place[2]
            if places.get(key) is place and key not in taken:
                taken.add(key)
                return key
        return None

    def taken(self) -> set[int]:
        return set(self._taken)

    def is_superseded(self, key: int) -> bool:
        """Whether a newer Package has its collapseKey: `put_back` would forget it."""
        return self._superseded_by(key, self._terms.get(key, _PLAIN)) is not None

    def hold(self, key: int) -> None:
        """Make a waiting key a taken one: its transmission began before the program did."""
        self._taken.add(key)

    def hasten(self, key: int) -> None:
        """It need not wait for its time any longer; a taken one is left alone."""
        if key in self._taken or self._terms.get(key, _PLAIN).due == -inf:
            return
        terms = self._terms[key] = self._terms[key]._replace(due=-inf)
        self._insert(self._places[key], terms)

    def put_back(self, key: int, due: float = -inf) -> bool:
        """It was not sent: it waits in its old place, until `due`.

        False when a newer Package has its collapseKey by now: that one gets the place, and `key`
        is forgotten.
        """
        self._taken.discard(key)
        terms = self._terms.get(key, _PLAIN)._replace(due=due)
        self._terms[key] = terms
        newer = self._superseded_by(key, terms)
        if newer is None:
            priority, order, _ = self._places[key]
            self._insert((priority, order, key), terms)
            return True
        place, newer_terms = self._inherit(self._places[newer], self._terms[newer], key)
        self.remove(key)
        if newer not in self._taken:
            self._insert(place, newer_terms)
        return False

    def _superseded_by(self, key: int, terms: _Terms) -> int | None:
        if terms.collapse is None:
            return None
        collapse_key, sos = terms.collapse
        rivals = [self._newest.get((collapse_key, kind)) for kind in [True, False][: 2 - sos]]
        return max((rival for rival in rivals if rival is not None and rival > key), default=None)

    def remove(self, key: int) -> bool:
        """It ended: sent, failed or canceled. False when it is not here."""
        if self._places.pop(key, None) is None:
            return False
        self._taken.discard(key)
        if self._terms:
            terms = self._terms.pop(key, _PLAIN)
            if terms.collapse is not None and self._newest.get(terms.collapse) == key:
                del self._newest[terms.collapse]
        if len(self._ready) > SLACK or self._delayed or self._expiries:
            self._bound()
        return True

    def expire(self, now: float) -> list[int]:
        """Forget and return what has outlived its time; a taken one is left until put back."""
        ended = []
        while self._expiries and self._expiries[0][0] <= now:
            timer = heappop(self._expiries)
            key = timer[1]
            if self._runs(timer) and key not in self._taken:
                self.remove(key)
                ended.append(key)
        return ended

    def next_change(self, now: float) -> float:
        """When the next one that waits becomes due or expires, whatever is due already."""
        self._promote(now)
        return min(self._first(self._delayed), self._first(self._expiries))

    def sizes(self) -> Sizes:
        heaps = (self._ready, self._delayed, self._expiries)
        return Sizes(len(self._places), tuple(len(heap) for heap in heaps))

    def _stands(self, place: Place) -> bool:
        return self._places.get(place[2]) is place and place[2] not in self._taken

    def _runs(self, timer: Timer) -> bool:
        time, key = timer
        return time in self._terms.get(key, _PLAIN)[1:]

    def _promote(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            due, key = heappop(self._delayed)
            terms = self._terms.get(key, _PLAIN)
            if terms.due == due and key not in self._taken:
                self._terms[key] = terms._replace(due=-inf)
                heappush(self._ready, self._places[key])

    def _first(self, timers: list[Timer]) -> float:
        while timers and not self._runs(timers[0]):
            heappop(timers)
        return timers[0][0] if timers else inf

    def _bound(self) -> None:
        most = 2 * len(self._places) + SLACK
        if len(self._ready) > most:
            _rebuild(self._ready, self._stands)
        if len(self._delayed) > most:
            _rebuild(self._delayed, self._runs)
        if len(self._expiries) > most:
            _rebuild(self._expiries, self._runs)


def _rebuild(heap: list[HeapEntry], lives: Callable[[HeapEntry], bool]) -> None:
    heap[:] = {entry for entry in heap if lives(entry)}
    heapify(heap)
