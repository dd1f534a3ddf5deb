"""Queue of one channel, ordered by priority, and by arrival within a priority.

Pure: this module reads no clock and does no I/O. `now` and all other times are seconds of the same
clock. Every operation costs O(log n). Entries are plain tuples, which take the least memory: a
gateway may have 100 000 waiting Packages. A heap entry that the index no longer contains is dead,
and is skipped. The length of a heap is at most twice its live entries plus 64.

`CollapseIndex` finds the newest Package of each collapseKey. An SOS replaces an older SOS or an
ordinary Package with its key, but an ordinary Package never replaces an SOS. `Timers` returns the
keys whose time has come, the earliest first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import islice
from math import inf
from typing import Any, Final, Generic, TypeVar

from fieldagent.system.lazy_dataclass import dataclass

HeapEntry = TypeVar("HeapEntry", bound=tuple[Any, ...])

SWEEP_STEP_ENTRIES = 24
"""Number of entries that one operation moves. The number is large enough that a sweep ends before
half of all entries can be dead."""


class SweptHeap(Generic[HeapEntry]):
    """Heap that removes its dead entries a few at a time. `is_live` returns True if an entry is
    live.

    Rebuilding a heap of 90 000 entries in one operation would block the queue for a tenth of a
    second. So if there are too many dead entries, a gradual sweep begins, and the present heap
    becomes the old heap. Each operation then takes some entries from the end of the old heap, and
    moves the live ones to a new heap. The rest of the old heap is still a heap, because its last
    entry has no children.
    """

    def __init__(self, is_live: Callable[[HeapEntry], bool]) -> None:
        self._lives = is_live
        self._heap: list[HeapEntry] = []
        self._old: list[HeapEntry] = []
        self._moved: set[HeapEntry] = set()
        """Entries that were moved in this sweep. An entry that occurs twice in the old heap is
        moved once."""

    def __len__(self) -> int:
        """Return the number of live and dead entries."""
        return len(self._heap) + len(self._old)

    def push(self, entry: HeapEntry) -> None:
        heappush(self._heap, entry)

    def find_first(self) -> HeapEntry | None:
        """Return the smallest live entry, or None. Remove the dead entries before it."""
        heap = self._find_foremost()
        return heap[0] if heap else None

    def pop(self) -> HeapEntry | None:
        """Remove and return the entry that `find_first` returns."""
        heap = self._find_foremost()
        return heappop(heap) if heap else None

    def _find_foremost(self) -> list[HeapEntry]:
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


Timer = tuple[float, int]
"""Time when an entry becomes due, and the entry's key."""


class Timers:
    """Timers of keys. `entries` contains a tuple for each key, and the key's valid time is the
    tuple's member at index `place`.
    """

    def __init__(self, entries: Mapping[int, Sequence[Any]], place: int) -> None:
        self._entries = entries
        self._place = place
        self._heap = SweptHeap(self._is_running)

    def _is_running(self, timer: Timer) -> bool:
        entry = self._entries.get(timer[1])
        return entry is not None and entry[self._place] == timer[0]

    def __len__(self) -> int:
        """Return the number of timers in the heap, including dead timers."""
        return len(self._heap)

    def add(self, timer: Timer) -> None:
        """Add a timer. The timer is valid as long as the entry of its key contains the same
        time.
        """
        self._heap.push(timer)

    def pop_due_keys(self, now: float) -> Iterator[int]:
        """Remove the timers whose time has come, and yield their keys."""
        while (timer := self._heap.find_first()) is not None and timer[0] <= now:
            self._heap.pop()
            yield timer[1]

    def find_first(self) -> float:
        """Return the time of the earliest timer, or infinity if there is no timer."""
        timer = self._heap.find_first()
        return inf if timer is None else timer[0]

    def limit_size(self, live_count: int, slack: int) -> None:
        """Limit the number of dead timers in the heap to `live_count` plus `slack`."""
        self._heap.limit_size(live_count, slack)


Kind = tuple[int, bool]
"""The collapseKey of a Package, and True if the Package is an SOS."""


def is_replaced_by(old_kind: Kind | None, new_kind: Kind) -> bool:
    """Return True if a newer Package of `new_kind` replaces an older Package of `old_kind`."""
    return old_kind is not None and old_kind[0] == new_kind[0] and new_kind[1] >= old_kind[1]


class CollapseIndex:
    def __init__(self) -> None:
        self._newest: dict[Kind, int] = {}

    def set_newest(self, kind: Kind | None, key: int) -> None:
        if kind is not None:
            self._newest[kind] = key

    def drop(self, kind: Kind | None, key: int) -> None:
        """Forget the removed Package `key` if it was the newest of its kind."""
        if kind is not None and self._newest.get(kind) == key:
            del self._newest[kind]

    def list_replaceable(self, kind: Kind | None, taken_keys: Collection[int]) -> list[int]:
        """Return the Packages that a new Package of `kind` replaces, except those in
        `taken_keys`.
        """
        if kind is None:
            return []
        collapse_key, sos = kind
        keys = [self._newest.get((collapse_key, each)) for each in [False, True][: 1 + sos]]
        return [key for key in keys if key is not None and key not in taken_keys]

    def find_newer(self, kind: Kind | None, key: int) -> int | None:
        """Return the newest Package that replaces the Package `key`, or None if there is none."""
        if kind is None:
            return None
        collapse_key, sos = kind
        rivals = [self._newest.get((collapse_key, each)) for each in [True, False][: 2 - sos]]
        return max((rival for rival in rivals if rival is not None and rival > key), default=None)


DEAD_ENTRIES_SLACK = 64

Place = tuple[int, int, int]
"""Negated priority, order and key. If priorities are equal, the smaller order is sent first."""
Entry = tuple[int, int, int, Kind | None, float, float]
"""The three members of the Place, then the Kind, the expiry time and the due time."""
_KEY: Final = 2
_COLLAPSE: Final = 3
_EXPIRES: Final = 4
_DUE_INDEX: Final = 5


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a queue. Tests use them to check that the queue does not grow without limit."""

    live: int
    """Number of Packages in the queue."""
    heaps: tuple[int, ...]
    """Lengths of the three heaps (ready, delayed and expiring Packages). A heap may also contain
    entries of Packages that have left the queue."""


class Queue:
    """Queue of Packages. A key is an integer that grows with each Package. A key is waiting, held,
    taken, or unknown.
    """

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        """Entry of every live key: the same tuple object as in `_ready`."""
        self._negated: dict[int, int] = {}
        """Negated priorities, with one shared object for each priority to save memory."""
        self._skipped: set[int] = set()
        """Keys that `pop_due` skips: in flight, or held."""
        self._held: set[int] = set()
        self._overtaken: set[int] = set()
        """Keys in flight whose Package was replaced by a newer Package that has already arrived."""
        self._collapse = CollapseIndex()
        self._ready: SweptHeap[Entry] = SweptHeap(
            lambda entry: self._entries.get(entry[2]) is entry and entry[2] not in self._skipped
        )
        self._delayed = Timers(self._entries, _DUE_INDEX)
        self._expiries = Timers(self._entries, _EXPIRES)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: int) -> bool:
        return key in self._entries

    def list_keys(self) -> list[int]:
        """Return all keys in the queue, in any order."""
        return list(self._entries)

    def find_place(self, key: int) -> Place:
        """Return the place of a key. The key with the smallest place goes first."""
        return self._entries[key][:_COLLAPSE]

    def hold_replaceable(self, collapse_key: int | None, *, sos: bool = False) -> list[int]:
        """Hold the Packages that a new Package will replace, and return them. `pop_due` does not
        return a held Package. When the new Package is added, `add` removes the held Package.
        Otherwise `release` makes it wait again.
        """
        held_sequences = self._collapse.list_replaceable(
            None if collapse_key is None else (collapse_key, sos), self.get_in_flight()
        )
        self._skipped.update(held_sequences)
        self._held.update(held_sequences)
        return held_sequences

    def release(self, key: int) -> None:
        if key in self._held:
            self._held.discard(key)
            self.requeue(key, self._entries[key][_DUE_INDEX])

    def add(
        self,
        key: int,
        *,
        priority: int,
        collapse_key: int | None = None,
        sos: bool = False,
        expires: float = inf,
        due_time: float = -inf,
        is_taken: bool = False,
        newest_first: bool = False,
    ) -> list[int]:
        """Add a Package. Remove the Packages that it replaces, and return them.

        If `is_taken`, the Package is in flight immediately, because its transmission began before
        the program started.

        If `newest_first`, the Package is sent before earlier Packages with the same flag. All
        Packages with this flag are sent before other Packages of their priority.

        A newer Package takes the older one's place if their priority is equal. A taken Package is
        not recalled, but `requeue` later reports that it was replaced. An SOS is replaced only by
        another SOS.
        """
        if is_taken:
            self._skipped.add(key)
        negated = self._negated.setdefault(-priority, -priority)
        if collapse_key is None and expires == inf and due_time == -inf and not newest_first:
            # Skip `_limit_heaps`: one more live entry cannot make the heap too long.
            plain: Entry = (negated, key, key, None, inf, -inf)
            self._entries[key] = plain
            self._ready.push(plain)
            return []
        collapse = None if collapse_key is None else (collapse_key, sos)
        order = -key if newest_first else key
        entry: Entry = (negated, order, key, collapse, expires, due_time)
        replaced = self._collapse.list_replaceable(collapse, self.get_in_flight())
        for older in replaced:
            entry = _merge_entries(entry, self._entries[older])
            self.remove(older)
        self._collapse.set_newest(collapse, key)
        self._insert(entry)
        return replaced

    def _insert(self, entry: Entry) -> None:
        key, expires, due = entry[_KEY], entry[_EXPIRES], entry[_DUE_INDEX]
        self._entries[key] = entry
        if due > -inf:
            self._delayed.add((due, key))
        else:
            self._ready.push(entry)
        if expires < inf:
            self._expiries.add((expires, key))
        self._limit_heaps()

    def find_foremost(self, now: float) -> int | None:
        """Return the key that `pop_due` would return now, or None."""
        self._promote(now)
        entry = self._ready.find_first()
        return None if entry is None else entry[_KEY]

    def pop_due(self, now: float) -> int | None:
        """Take the most urgent Package that is due, and return its key. Return None if no Package
        is due. The Package stays taken until `requeue` or `remove` is called.
        """
        if self._delayed:
            self._promote(now)
        entry = self._ready.pop()
        if entry is None:
            return None
        self._skipped.add(entry[_KEY])
        return entry[_KEY]

    def get_in_flight(self) -> set[int]:
        """Return the keys that were taken with `pop_due`, or added as taken, and that have not been
        requeued or removed.
        """
        return self._skipped - self._held

    def is_superseded(self, key: int) -> bool:
        """Return True if a newer Package with the same collapseKey waits or has arrived. Then
        `requeue` would remove the Package `key`.
        """
        collapse = _get_kind(self._entries.get(key))
        return key in self._overtaken or self._collapse.find_newer(collapse, key) is not None

    def hold_until_hastened(self, key: int) -> None:
        """Make a Package wait until `hasten` is called. A Package in flight is not changed."""
        self._move(key, inf)

    def hasten(self, key: int) -> None:
        """Make a Package due now. A Package in flight is not changed."""
        self._move(key, -inf)

    def _move(self, key: int, due_time: float) -> None:
        entry = self._entries.get(key)
        if entry is None or entry[_DUE_INDEX] == due_time:
            return
        if key in self._held:
            # If a new Package replaces the held one, it inherits this time. If the held Package is
            # released instead, it keeps this time.
            self._entries[key] = _make_due_entry(entry, due_time)
        elif key not in self._skipped:
            self._insert(_make_due_entry(entry, due_time))

    def requeue(self, key: int, due_time: float = -inf) -> bool:
        """Put back a Package that was not sent. It waits in its old place until `due_time`.

        If a newer Package with the same collapseKey waits or has already arrived, remove `key` and
        return False. A newer Package that waits gets the place of `key`.
        """
        self._skipped.discard(key)
        negated, order, _, collapse, expires, _ = self._entries[key]
        entry = (negated, order, key, collapse, expires, due_time)
        newer = self._collapse.find_newer(collapse, key)
        if newer is None and key in self._overtaken:
            self.remove(key)
            return False
        if newer is None:
            # A newer Package of this kind may have been added and ended in the meantime, so make
            # this one the newest again.
            self._collapse.set_newest(collapse, key)
            self._insert(entry)
            return True
        merged = _merge_entries(self._entries[newer], entry)
        self.remove(key)
        if newer not in self._skipped:
            self._insert(merged)
        return False

    def remove(self, key: int, *, is_arrived: bool = False) -> bool:
        """Remove a Package that ended: sent, failed or cancelled. Return False if it is not in the
        queue.

        If the Package has arrived (`is_arrived`), older Packages in flight with its collapseKey
        must not be sent again.
        """
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        collapse = entry[_COLLAPSE]
        if is_arrived and collapse is not None:
            older = {other for other in self._skipped if other < key}
            self._overtaken |= {
                other
                for other in older
                if is_replaced_by(_get_kind(self._entries.get(other)), collapse)
            }
        self._skipped.discard(key)
        self._held.discard(key)
        self._overtaken.discard(key)
        if collapse is not None:
            self._collapse.drop(collapse, key)
        if len(self._ready) > DEAD_ENTRIES_SLACK or self._delayed or self._expiries:
            self._limit_heaps()
        return True

    def expire(self, now: float, limit: int | None = None) -> list[int]:
        """Remove and return expired Packages, processing at most `limit` timers. A taken Package is
        skipped: it expires after `requeue`.
        """
        expired = []
        for key in islice(self._expiries.pop_due_keys(now), limit):
            if key not in self._skipped:
                self.remove(key)
                expired.append(key)
        return expired

    def compute_next_change(self, now: float) -> float:
        """Return the next time when a waiting Package becomes due or expires. Packages that are
        already due are ignored.
        """
        self._promote(now)
        return min(self._delayed.find_first(), self._expiries.find_first())

    def _promote(self, now: float) -> None:
        for key in self._delayed.pop_due_keys(now):
            if key not in self._skipped:
                self._entries[key] = entry = _make_due_entry(self._entries[key], -inf)
                self._ready.push(entry)

    def _limit_heaps(self) -> None:
        live = len(self._entries)
        for heap in (self._ready, self._delayed, self._expiries):
            heap.limit_size(live, DEAD_ENTRIES_SLACK)

    def compute_due_time(self, key: int) -> float:
        """Return the time when the Package may be sent, or -inf if it may be sent now."""
        entry = self._entries.get(key)
        return -inf if entry is None else entry[_DUE_INDEX]

    def get_sizes(self) -> Sizes:
        """Return the sizes of all parts that grow with the number of waiting Packages."""
        heaps = (self._ready, self._delayed, self._expiries)
        return Sizes(len(self), tuple(len(heap) for heap in heaps))


def _get_kind(entry: Entry | None) -> Kind | None:
    return None if entry is None else entry[_COLLAPSE]


def _make_due_entry(entry: Entry, due_time: float) -> Entry:
    return (*entry[:_DUE_INDEX], due_time)


def _merge_entries(new_entry: Entry, old_entry: Entry) -> Entry:
    """Return the new entry. If both entries have the same priority, use the earlier order and the
    later due time.
    """
    negated, order, key, collapse, expires, due = new_entry
    if negated != old_entry[0]:
        return new_entry
    return (
        negated,
        min(order, old_entry[1]),
        key,
        collapse,
        expires,
        max(due, old_entry[_DUE_INDEX]),
    )
