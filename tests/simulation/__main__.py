"""Runs seeds and stops at the first failure: python -m tests.simulation FIRST [LAST].

With one seed, it prints the whole trace.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.simulation.world import simulate

first, last = int(sys.argv[1]), int(sys.argv[-1])
for seed in range(first, last + 1):
    with tempfile.TemporaryDirectory(prefix="fieldagent-seed-") as home:
        world = simulate(seed, Path(home))
    if first == last:
        print("\n".join(world.log))
print(f"{last - first + 1} seeds held")
