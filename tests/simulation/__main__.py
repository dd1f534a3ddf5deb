"""Run seeds and stop at the first that fails: python -m tests.simulation FIRST [LAST].

With one seed its whole trace is printed.
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
