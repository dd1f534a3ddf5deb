"""One channel's queue: priority first, first come first served within it.

Pure: it reads no clock (`now` and other times are seconds of any one clock) and does no I/O. Every
operation costs O(log n). Entries are plain tuples, which take the least memory: a gateway may have
100 000 waiting. One in a heap that the index no longer holds is dead and skipped, and no heap has
more than twice the live entries plus 64.
"""

from __future__ import annotations

from itertools import islice
from math import inf
from typing import Final

from fieldagent.agent.outbound.collapse import CollapseIndex, Kind, yields
from fieldagent.agent.outbound.swept_heap import SweptHeap
from fieldagent.agent.outbound.timers import Timers
from fieldagent.system.lazy_dataclass import dataclass

SLACK = 64

Place = tuple[int, int, int]
"""Negated priority, order (the smaller goes first among equals), key."""
Entry = tuple[int, int, int, Kind | None, float, float]
"""A place; then collapseKey, when it expires, and when it is due."""
_KEY: Final = 2
_COLLAPSE: Final = 3
_EXPIRES: Final = 4
_DUE: Final = 5


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the bound on memory is about; `heaps` holds the length of each heap."""

    live: int
    heaps: tuple[int, ...]


class Queue:
    """Keys are integers that grow with each Package. A key is waiting, held, taken, or unknown."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        """Of every key that lives: the very tuple that stands, or will stand, in `_ready`."""
        self._negated: dict[int, int] = {}
        """Each priority once, not an object of its own for every key."""
        self._taken: set[int] = set()
        """Those that `take` passes over: in flight, or held."""
        self._held: set[int] = set()
        self._overtaken: set[int] = set()
        """Of those in flight the ones of whose collapseKey a newer Package has arrived."""
        self._collapse = CollapseIndex()
        self._ready: SweptHeap[Entry] = SweptHeap(
            lambda entry: self._entries.get(entry[2]) is entry and entry[2] not in self._taken
        )
        self._delayed = Timers(self._entries, _DUE)
        self._expiries = Timers(self._entries, _EXPIRES)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: int) -> bool:
        return key in self._entries

    def keys(self) -> list[int]:
        """Return the keys of all that is in the queue, in no order."""
        return list(self._entries)

    def place(self, key: int) -> Place:
        """Return the place of a key: the smaller goes first."""
        return self._entries[key][:_COLLAPSE]

    def hold(self, collapse_key: int | None, *, sos: bool = False) -> list[int]:
        """Return what a Package that is about to be added replaces. It is not taken meanwhile:
        `add` of that Package forgets it, `release` lets it wait again."""
        held = self._collapse.replaceable(
            None if collapse_key is None else (collapse_key, sos), self.taken()
        )
        self._taken.update(held)
        self._held.update(held)
        return held

    def release(self, key: int) -> None:
        if key in self._held:
            self._held.discard(key)
            self.put_back(key, self._entries[key][_DUE])

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
        newest_first: bool = False,
    ) -> list[int]:
        """Append a Package; returns those that it replaces, which are forgotten here.

        One that is `taken` at once is in flight already: its transmission began before the program.

        Among those that go `newest_first` the later added goes ahead, and all of them go ahead of
        others of their priority.

        The newer takes the older one's place when their priority is equal. A taken one is not
        recalled: `put_back` tells. An SOS yields to another SOS only.
        """
        if taken:
            self._taken.add(key)
        negated = self._negated.setdefault(-priority, -priority)
        if collapse_key is None and expires == inf and due == -inf and not newest_first:
            # One live entry more cannot break the bound.
            plain: Entry = (negated, key, key, None, inf, -inf)
            self._entries[key] = plain
            self._ready.push(plain)
            return []
        collapse = None if collapse_key is None else (collapse_key, sos)
        order = -key if newest_first else key
        entry: Entry = (negated, order, key, collapse, expires, due)
        replaced = self._collapse.replaceable(collapse, self.taken())
        for older in replaced:
            entry = _inherited(entry, self._entries[older])
            self.remove(older)
        self._collapse.note(collapse, key)
        self._insert(entry)
        return replaced

    def _insert(self, entry: Entry) -> None:
        key, expires, due = entry[_KEY], entry[_EXPIRES], entry[_DUE]
        self._entries[key] = entry
        if due > -inf:
            self._delayed.add((due, key))
        else:
            self._ready.push(entry)
        if expires < inf:
            self._expiries.add((expires, key))
        self._bound()

    def foremost(self, now: float) -> int | None:
        """Return what `take` would take."""
        self._promote(now)
        entry = self._ready.first()
        return None if entry is None else entry[_KEY]

    def take(self, now: float) -> int | None:
        """Take the most urgent Package that is due; it is the taker's until put_back or remove."""
        if self._delayed:
            self._promote(now)
        entry = self._ready.pop()
        if entry is None:
            return None
        self._taken.add(entry[_KEY])
        return entry[_KEY]

    def taken(self) -> set[int]:
        """Return those in flight."""
        return self._taken - self._held

    def is_superseded(self, key: int) -> bool:
        """Return whether a newer Package has its collapseKey, or had it and arrived: `put_back`
        would forget it."""
        collapse = _kind(self._entries.get(key))
        return key in self._overtaken or self._collapse.newer(collapse, key) is not None

    def put_off(self, key: int) -> None:
        """Let it wait for no moment, but for `hasten`; one in flight is left alone."""
        self._move(key, inf)

    def hasten(self, key: int) -> None:
        """Let it wait for its time no longer; one in flight is left alone."""
        self._move(key, -inf)

    def _move(self, key: int, due: float) -> None:
        entry = self._entries.get(key)
        if entry is None or entry[_DUE] == due:
            return
        if key in self._held:
            # Its heir gets that moment, or it does once it is released.
            self._entries[key] = _due_at(entry, due)
        elif key not in self._taken:
            self._insert(_due_at(entry, due))

    def put_back(self, key: int, due: float = -inf) -> bool:
        """Put back one that was not sent: it waits in its old place, until `due`.

        False when a newer Package has its collapseKey by now: that one gets the place, and `key` is
        forgotten. So is one that would arrive after a newer one.
        """
        self._taken.discard(key)
        negated, order, _, collapse, expires, _ = self._entries[key]
        entry = (negated, order, key, collapse, expires, due)
        newer = self._collapse.newer(collapse, key)
        if newer is None and key in self._overtaken:
            self.remove(key)
            return False
        if newer is None:
            # One that was newer may have ended meanwhile.
            self._collapse.note(collapse, key)
            self._insert(entry)
            return True
        heir = _inherited(self._entries[newer], entry)
        self.remove(key)
        if newer not in self._taken:
            self._insert(heir)
        return False

    def remove(self, key: int, *, arrived: bool = False) -> bool:
        """Remove one that ended: sent, failed or canceled. False when it is not here.

        Where it has `arrived`, older ones of its collapseKey that are in flight are not to follow.
        """
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        collapse = entry[_COLLAPSE]
        if arrived and collapse is not None:
            older = {other for other in self._taken if other < key}
            self._overtaken |= {
                other for other in older if yields(_kind(self._entries.get(other)), collapse)
            }
        self._taken.discard(key)
        self._held.discard(key)
        self._overtaken.discard(key)
        if collapse is not None:
            self._collapse.drop(collapse, key)
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
        """Return when the next one that waits becomes due or expires, whatever is due already."""
        self._promote(now)
        return min(self._delayed.first(), self._expiries.first())

    def _promote(self, now: float) -> None:
        for key in self._delayed.due(now):
            if key not in self._taken:
                self._entries[key] = entry = _due_at(self._entries[key], -inf)
                self._ready.push(entry)

    def _bound(self) -> None:
        live = len(self._entries)
        for heap in (self._ready, self._delayed, self._expiries):
            heap.bound(live, SLACK)


def _kind(entry: Entry | None) -> Kind | None:
    return None if entry is None else entry[_COLLAPSE]


def _due_at(entry: Entry, due: float) -> Entry:
    return (*entry[:_DUE], due)


def _inherited(newer: Entry, older: Entry) -> Entry:
    """The newer Package with what it gets of the one that it replaces, where their priority is
    equal."""
    negated, order, key, collapse, expires, due = newer
    if negated != older[0]:
        return newer
    return (negated, min(order, older[1]), key, collapse, expires, max(due, older[_DUE]))


def due(queue: Queue, key: int) -> float:
    """Return when one that waits may go; long ago where it may at once."""
    entry = queue._entries.get(key)
    return -inf if entry is None else entry[_DUE]


def sizes(queue: Queue) -> Sizes:
    """Return the sizes of all that grows with what waits."""
    heaps = (queue._ready, queue._delayed, queue._expiries)
    return Sizes(len(queue), tuple(len(heap) for heap in heaps))
