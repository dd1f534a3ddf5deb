"""The queue against a naive model that keeps a sorted list."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fieldagent.agent.outbound.queue import DEAD_ENTRIES_SLACK, SWEEP_STEP_ENTRIES, Queue, SweptHeap


def drain(queue: Queue, now: float = 0.0) -> list[int]:
    taken = []
    while (key := queue.pop_due(now)) is not None:
        taken.append(key)
    return taken


def test_queue_is_ordered_by_priority_and_arrival() -> None:
    queue = Queue()
    for key, priority in enumerate([10, 12, 100, 12, 10]):
        queue.add(key, priority=priority)
    assert drain(queue) == [2, 1, 3, 0, 4]


def test_held_package_can_be_hastened_and_postponed() -> None:
    """Regression: such a Package waited forever. The replacement is sent, or the Package itself if
    the replacement is not stored.
    """
    queue = Queue()
    for key in (1, 2):
        queue.add(key, priority=10, collapse_key=key, due_time=inf)
        assert queue.hold_replaceable(key) == [key]
        queue.hasten(key)
    assert queue.find_foremost(0.0) is None
    queue.release(1)
    assert queue.add(3, priority=10, collapse_key=2) == [2]
    assert drain(queue) == [1, 3]
    queue.requeue(1)
    assert queue.hold_replaceable(1) == [1]
    queue.hold_until_hastened(1)
    queue.release(1)
    assert queue.find_foremost(9.0) is None


def test_replacement_keeps_place_of_replaced_package() -> None:
    queue = Queue()
    queue.add(1, priority=10, collapse_key=7)
    queue.add(2, priority=10)
    assert queue.add(3, priority=10, collapse_key=7) == [1]
    assert drain(queue) == [3, 2]


def test_replacement_with_other_priority_gets_new_place() -> None:
    queue = Queue()
    queue.add(1, priority=12, collapse_key=7)
    queue.add(2, priority=11)
    assert queue.add(3, priority=10, collapse_key=7) == [1]
    assert drain(queue) == [2, 3]


def test_package_in_flight_yields_to_replacement_before_retry() -> None:
    queue = Queue()
    queue.add(1, priority=10, collapse_key=7)
    queue.add(2, priority=10)
    assert queue.pop_due(0) == 1
    assert queue.add(3, priority=10, collapse_key=7) == []
    assert queue.requeue(1, due_time=50) is False
    assert 1 not in queue
    assert queue.pop_due(49) == 2
    assert queue.pop_due(49) is None, "the replacement inherits the retry time"
    assert queue.pop_due(50) == 3


def test_sos_is_replaced_only_by_another_sos() -> None:
    queue = Queue()
    queue.add(1, priority=100, collapse_key=7, sos=True)
    assert queue.add(2, priority=200, collapse_key=7) == []
    assert queue.add(3, priority=100, collapse_key=7, sos=True) == [2, 1]
    assert drain(queue) == [3]


def test_requeued_package_is_replaceable_after_removal_of_newer_package() -> None:
    queue = Queue()
    queue.add(1, priority=12, collapse_key=7)
    assert queue.pop_due(0) == 1
    queue.add(2, priority=12, collapse_key=7)
    queue.remove(2)
    assert queue.requeue(1)
    assert queue.hold_replaceable(7) == [1]
    assert queue.add(3, priority=12, collapse_key=7) == [1]
    assert drain(queue) == [3]


def test_package_is_not_requeued_after_delivery_of_newer_package() -> None:
    queue = Queue()
    for key in (1, 2, 3):
        queue.add(key, priority=12, collapse_key=7)
        assert queue.pop_due(0) == key
    queue.add(4, priority=100, collapse_key=7, sos=True)
    assert queue.pop_due(0) == 4
    queue.remove(2, is_arrived=True)
    assert queue.is_superseded(1)
    assert not queue.requeue(1)
    queue.remove(3)
    queue.add(5, priority=12, collapse_key=7)
    assert queue.pop_due(0) == 5
    queue.remove(5, is_arrived=True)
    assert queue.requeue(4), "an SOS yields to another SOS only"
    assert drain(queue) == [4]


def test_next_change_is_earliest_due_time_or_expiry() -> None:
    queue = Queue()
    assert queue.compute_next_change(0) == inf
    queue.add(1, priority=10, due_time=30, expires=90)
    assert queue.compute_next_change(0) == 30
    assert queue.pop_due(30) == 1
    queue.requeue(1, due_time=100)
    assert queue.compute_next_change(31) == 90
    assert queue.expire(90) == [1]
    assert queue.compute_next_change(90) == inf


@dataclass
class Entry:
    key: int
    priority: int
    order: int
    collapse: int | None
    sos: bool
    expires: float
    due: float
    taken: bool = False
    overtaken: bool = False
    """True if a newer entry has arrived."""


class AgainstTheModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()
        self.model: list[Entry] = []
        self.now = 0.0
        self.next_key = 1

    def find(self, key: int) -> Entry:
        return next(entry for entry in self.model if entry.key == key)

    @rule(
        priority=st.sampled_from([10, 12, 100]),
        collapse=st.none() | st.integers(1, 2),
        sos=st.booleans(),
        life=st.sampled_from([inf, 5.0, 20.0]),
        hold=st.booleans(),
        ahead=st.booleans(),
    )
    def add(
        self, priority: int, collapse: int | None, sos: bool, life: float, hold: bool, ahead: bool
    ) -> None:
        key, self.next_key = self.next_key, self.next_key + 1
        order = -key if ahead else key
        new = Entry(key, priority, order, collapse, sos, self.now + life, -inf)
        # An older taken one hides those before it, because only the newest of a kind can be
        # replaced.
        rivals: list[Entry] = []
        for kind in [False, True][: 1 + sos]:
            same = [e for e in self.model if e.collapse == collapse and e.sos is kind]
            if collapse is not None and same:
                newest = max(same, key=lambda entry: entry.key)
                rivals += [] if newest.taken else [newest]
        if hold:
            assert self.queue.hold_replaceable(collapse, sos=sos) == [entry.key for entry in rivals]
            first = next((e for e in self.due() if e not in rivals), None)
            assert self.queue.find_foremost(self.now) == (first and first.key)
        for old in rivals:
            self.model.remove(old)
            self.inherit(new, old)
        self.model.append(new)
        replaced = self.queue.add(
            key,
            priority=priority,
            collapse_key=collapse,
            sos=sos,
            expires=new.expires,
            newest_first=ahead,
        )
        assert replaced == [entry.key for entry in rivals]

    @staticmethod
    def inherit(new: Entry, old: Entry) -> None:
        if new.priority == old.priority:
            new.order = min(new.order, old.order)
            new.due = max(new.due, old.due)

    def due(self) -> list[Entry]:
        ready = [e for e in self.model if not e.taken and e.due <= self.now]
        return sorted(ready, key=lambda entry: (-entry.priority, entry.order))

    @rule()
    def receive_message(self) -> None:
        expected = self.due()
        assert self.queue.pop_due(self.now) == (expected[0].key if expected else None)
        if expected:
            expected[0].taken = True

    @rule(collapse=st.integers(1, 2), sos=st.booleans())
    def hold_and_release(self, collapse: int, sos: bool) -> None:
        for key in self.queue.hold_replaceable(collapse, sos=sos):
            assert key not in self.queue.get_in_flight()
            self.queue.release(key)

    @precondition(lambda self: any(entry.taken for entry in self.model))
    @rule(data=st.data(), delay=st.sampled_from([-inf, 3.0, 10.0]))
    def put_back(self, data: st.DataObject, delay: float) -> None:
        key = data.draw(st.sampled_from([e.key for e in self.model if e.taken]))
        old = self.find(key)
        kinds = [True] if old.sos else [True, False]
        rivals = [
            e
            for e in self.model
            if old.collapse is not None
            and e.collapse == old.collapse
            and e.sos in kinds
            and e.key > key
            and e.key
            == max(r.key for r in self.model if (r.collapse, r.sos) == (e.collapse, e.sos))
        ]
        old.taken, old.due = False, self.now + delay
        assert self.queue.is_superseded(key) is (old.overtaken or bool(rivals))
        assert self.queue.requeue(key, old.due) is not (old.overtaken or bool(rivals))
        if old.overtaken or rivals:
            self.model.remove(old)
        if rivals:
            newest = max(rivals, key=lambda entry: entry.key)
            if not newest.taken:
                self.inherit(newest, old)

    @precondition(lambda self: any(entry.taken for entry in self.model))
    @rule(data=st.data())
    def arrives(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([e.key for e in self.model if e.taken]))
        new = self.find(key)
        self.model.remove(new)
        for old in self.model:
            same = old.collapse is not None and old.collapse == new.collapse
            if old.taken and old.key < key and same and (new.sos or not old.sos):
                old.overtaken = True
        assert self.queue.remove(key, is_arrived=True)

    @precondition(lambda self: bool(self.model))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([entry.key for entry in self.model]))
        assert self.queue.remove(key)
        assert not self.queue.remove(key)
        self.model.remove(self.find(key))

    @rule(step=st.sampled_from([0.5, 4.0, 30.0]))
    def time_passes(self, step: float) -> None:
        self.now += step
        ended = [e for e in self.model if not e.taken and e.expires <= self.now]
        assert sorted(self.queue.expire(self.now)) == [entry.key for entry in ended]
        for entry in ended:
            self.model.remove(entry)

    @invariant()
    def agrees(self) -> None:
        assert len(self.queue) == len(self.model)
        expected = self.due()
        assert self.queue.find_foremost(self.now) == (expected[0].key if expected else None)

    @invariant()
    def next_change_is_not_late(self) -> None:
        waiting = [e for e in self.model if not e.taken]
        times = [t for e in waiting for t in (e.due, e.expires) if t > self.now]
        assert self.queue.compute_next_change(self.now) <= min(times, default=inf)

    @invariant()
    def stays_bounded(self) -> None:
        size = self.queue.get_sizes()
        assert max(size.heaps) <= 2 * size.live + DEAD_ENTRIES_SLACK


TestAgainstTheModel = AgainstTheModel.TestCase
TestAgainstTheModel.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)


def test_many_replacements_do_not_grow_heaps() -> None:
    queue = Queue()
    for key in range(10_000):
        queue.add(key, priority=10, collapse_key=1, expires=key + 100.0, due_time=5.0)
    size = queue.get_sizes()
    assert size.live == 1
    assert max(size.heaps) <= 2 + DEAD_ENTRIES_SLACK


@pytest.mark.parametrize("order", [1, -1, 0])
def test_clearing_long_queue_sweeps_heaps_in_small_steps(order: int) -> None:
    """Clear it from the front, from the back and at random: no step is long, and the limit always
    holds.
    """
    queue = Queue()
    keys = list(range(5000))
    for key in keys:
        queue.add(key, priority=key % 3, expires=1000.0 + key, due_time=5.0 if key % 2 else -inf)
    queue.find_foremost(10.0)
    Random(1).shuffle(keys) if order == 0 else keys.sort(reverse=order < 0)
    looks = 0

    def counted(self: SweptHeap[Any], live: int, slack: int) -> None:
        nonlocal looks
        before = self._lives

        def lives(entry: Any) -> bool:
            nonlocal looks
            looks += 1
            return before(entry)

        self._lives = lives
        bound(self, live, slack)
        self._lives = before

    bound = SweptHeap.limit_size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SweptHeap, "limit_size", counted)
        for key in keys:
            looks = 0
            queue.remove(key)
            size = queue.get_sizes()
            assert max(size.heaps) <= 2 * size.live + DEAD_ENTRIES_SLACK
            assert looks <= len(size.heaps) * SWEEP_STEP_ENTRIES
    assert queue.find_foremost(10.0) is None
