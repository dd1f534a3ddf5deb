"""One channel's queue: priority first, first come first served within it.

Pure: it reads no clock (`now` and other times are seconds of any one clock) and does no I/O. Every
operation costs O(log n). Entries of the heaps are plain tuples; one that the index no longer
holds is dead and skipped, and no heap has more than twice the live entries plus 64.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import NamedTuple

from fieldagent.agent.outbound.collapse import CollapseIndex, Kind, yields
from fieldagent.agent.outbound.swept_heap import SweptHeap
from fieldagent.agent.outbound.timers import Timers

SLACK = 64

Place = tuple[int, int, int]
"""Negated priority, order (the smaller goes first among equals), key."""


class _Terms(NamedTuple):
    """What most Packages have none of."""

    collapse: Kind | None = None
    expires: float = inf
    due: float = -inf


_PLAIN = _Terms()


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the bound on memory is about; `heaps` holds the length of each heap."""

    live: int
    heaps: tuple[int, ...]


class Queue:
    """Keys are integers that grow with each Package. A key is waiting, held, taken, or unknown."""

    def __init__(self) -> None:
        self._places: dict[int, Place] = {}
        """Of every key that lives: the very tuple that stands, or will stand, in `_ready`."""
        self._terms: dict[int, _Terms] = {}
        self._taken: set[int] = set()
        """Those that `take` passes over: in flight, or held."""
        self._held: set[int] = set()
        self._overtaken: set[int] = set()
        """Of those in flight the ones of whose collapseKey a newer Package has arrived."""
        self._collapse = CollapseIndex()
        self._ready: SweptHeap[Place] = SweptHeap(
            lambda place: self._places.get(place[2]) is place and place[2] not in self._taken
        )
        self._delayed = Timers(self._terms, _Terms._fields.index("due"))
        self._expiries = Timers(self._terms, _Terms._fields.index("expires"))

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: int) -> bool:
        return key in self._places

    def keys(self) -> list[int]:
        return list(self._places)

    def place(self, key: int) -> Place:
        """The smaller goes first."""
        return self._places[key]

    def hold(self, collapse_key: int | None, *, sos: bool = False) -> list[int]:
        """What a Package that is about to be added replaces. It is not taken meanwhile: `add` of
        that Package forgets it, `release` lets it wait again."""
        held = self._collapse.replaceable(
            None if collapse_key is None else (collapse_key, sos), self.taken()
        )
        self._taken.update(held)
        self._held.update(held)
        return held

    def release(self, key: int) -> None:
        if key in self._held:
            self._held.discard(key)
            self.put_back(key, self._terms[key].due)

    def add(
        self,
        key: int,
        *,
        priority: int,
        collapse_key: int | None = None,
        sos: bool = False,
        expires: float = inf,
        due: float = -inf,
        taken: bool = False,
    ) -> list[int]:
        """Append a Package; returns those that it replaces, which are forgotten here.

        One that is `taken` at once is in flight already: its transmission began before the program.

        The newer takes the older one's place when their priority is equal. A taken one is not
        recalled: `put_back` tells. An SOS yields to another SOS only.
        """
        if taken:
            self._taken.add(key)
        place = (-priority, key, key)
        if collapse_key is None and expires == inf and due == -inf:
            # One live entry more cannot break the bound.
            self._places[key] = place
            self._ready.push(place)
            return []
        collapse = None if collapse_key is None else (collapse_key, sos)
        terms = _Terms(collapse, expires, due)
        replaced = self._collapse.replaceable(collapse, self.taken())
        for older in replaced:
            place, terms = _inherited(
                place, terms, self._places[older], self._terms.get(older, _PLAIN)
            )
            self.remove(older)
        self._collapse.note(collapse, key)
        self._insert(place, terms)
        return replaced

    def _insert(self, place: Place, terms: _Terms) -> None:
        key = place[2]
        self._places[key] = place
        self._terms[key] = terms
        if terms.due > -inf:
            self._delayed.add((terms.due, key))
        else:
            self._ready.push(place)
        if terms.expires < inf:
            self._expiries.add((terms.expires, key))
        self._bound()

    def foremost(self, now: float) -> int | None:
        """What `take` would take."""
        self._promote(now)
        place = self._ready.first()
        return None if place is None else place[2]

    def take(self, now: float) -> int | None:
        """The most urgent Package that is due; it is the taker's until put_back or remove."""
        if self._delayed:
            self._promote(now)
        place = self._ready.pop()
        if place is None:
            return None
        self._taken.add(place[2])
        return place[2]

    def taken(self) -> set[int]:
        """Those in flight."""
        return self._taken - self._held

    def is_superseded(self, key: int) -> bool:
        """Whether a newer Package has its collapseKey, or had it and arrived: `put_back` would
        forget it."""
        collapse = self._terms.get(key, _PLAIN).collapse
        return key in self._overtaken or self._collapse.newer(collapse, key) is not None

    def hasten(self, key: int) -> None:
        """It need not wait for its time any longer; a taken one is left alone."""
        if key in self._taken or self._terms.get(key, _PLAIN).due == -inf:
            return
        terms = self._terms[key] = self._terms[key]._replace(due=-inf)
        self._insert(self._places[key], terms)

    def put_back(self, key: int, due: float = -inf) -> bool:
        """It was not sent: it waits in its old place, until `due`.

        False when a newer Package has its collapseKey by now: that one gets the place, and `key`
        is forgotten. So is one that would arrive after a newer one.
        """
        self._taken.discard(key)
        terms = self._terms.get(key, _PLAIN)._replace(due=due)
        self._terms[key] = terms
        newer = self._collapse.newer(terms.collapse, key)
        if newer is None and key in self._overtaken:
            self.remove(key)
            return False
        if newer is None:
            # One that was newer may have ended meanwhile.
            self._collapse.note(terms.collapse, key)
            priority, order, _ = self._places[key]
            self._insert((priority, order, key), terms)
            return True
        place, newer_terms = _inherited(
            self._places[newer], self._terms[newer], self._places[key], terms
        )
        self.remove(key)
        if newer not in self._taken:
            self._insert(place, newer_terms)
        return False

    def remove(self, key: int, *, arrived: bool = False) -> bool:
        """It ended: sent, failed or canceled. False when it is not here.

        Where it has `arrived`, older ones of its collapseKey that are in flight are not to follow.
        """
        if self._places.pop(key, None) is None:
            return False
        collapse = self._terms.get(key, _PLAIN).collapse
        if arrived and collapse is not None:
            older = {other for other in self._taken if other < key}
            kinds = {other: self._terms.get(other, _PLAIN).collapse for other in older}
            self._overtaken |= {other for other in older if yields(kinds[other], collapse)}
        self._taken.discard(key)
        self._held.discard(key)
        self._overtaken.discard(key)
        if self._terms:
            self._collapse.drop(self._terms.pop(key, _PLAIN).collapse, key)
        if len(self._ready) > SLACK or self._delayed or self._expiries:
            self._bound()
        return True

    def expire(self, now: float, limit: int | None = None) -> list[int]:
        """Forget and return what has outlived its time, `limit` timers at once; a taken one is
        left until put back."""
        ended = []
        for key in islice(self._expiries.due(now), limit):
            if key not in self._taken:
                self.remove(key)
                ended.append(key)
        return ended

    def next_change(self, now: float) -> float:
        """When the next one that waits becomes due or expires, whatever is due already."""
        self._promote(now)
        return min(self._delayed.first(), self._expiries.first())

    def _promote(self, now: float) -> None:
        for key in self._delayed.due(now):
            if key not in self._taken:
                self._terms[key] = self._terms[key]._replace(due=-inf)
                self._ready.push(self._places[key])

    def _bound(self) -> None:
        live = len(self._places)
        for heap in (self._ready, self._delayed, self._expiries):
            heap.bound(live, SLACK)


def _inherited(
    place: Place, terms: _Terms, older: Place, older_terms: _Terms
) -> tuple[Place, _Terms]:
    """What a newer Package gets of the one that it replaces, where their priority is equal."""
    priority, order, key = place
    if priority != older[0]:
        return place, terms
    due = max(terms.due, older_terms.due)
    return (priority, min(order, older[1]), key), terms._replace(due=due)


def due(queue: Queue, key: int) -> float:
    """When one that waits may go; long ago where it may at once."""
    return queue._terms.get(key, _PLAIN).due


def sizes(queue: Queue) -> Sizes:
    """Of all that grows with what waits."""
    heaps = (queue._ready, queue._delayed, queue._expiries)
    return Sizes(len(queue), tuple(len(heap) for heap in heaps))
