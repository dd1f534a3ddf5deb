"""Compares the queue with a bare heap of tuples: 100 000 Packages of four priorities in and out.
There are several priorities, because Packages of one priority would be in order already.
"""

from __future__ import annotations

import gc
import heapq
import random
import time
from statistics import median

from fieldagent.agent.outbound.queue import Queue
from tests.bench.table import row

PACKAGES = 100_000
ROUNDS = 5


def bare_heap(priorities: list[int]) -> None:
    heap: list[tuple[int, int, int]] = []
    for key, priority in enumerate(priorities):
        heapq.heappush(heap, (-priority, key, key))
    while heap:
        heapq.heappop(heap)


def queue(priorities: list[int]) -> None:
    waiting = Queue()
    for key, priority in enumerate(priorities):
        waiting.add(key, priority=priority)
    while (taken := waiting.pop_due(0.0)) is not None:
        waiting.remove(taken)


def ratio() -> float:
    """Return the speed of the queue as a ratio to the bare heap: the median of alternating
    pairs.
    """
    priorities = random.Random(1).choices([10, 11, 12, 100], k=PACKAGES)
    ratios = []
    for _ in range(ROUNDS):
        times = []
        for run in (bare_heap, queue):
            gc.collect()
            began = time.perf_counter()
            run(priorities)
            times.append(time.perf_counter() - began)
        ratios.append(times[0] / times[1])
    return median(ratios)


def main() -> None:
    """Print the row."""
    row("queue over a bare tuple heap, 100 000", ratio(), ">= 0.5")


if __name__ == "__main__":
    main()
