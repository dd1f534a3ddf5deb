"""Runs benchmarks and writes their figures to `docs/reference/performance.md`.

    python -m tests.bench [NAME...]

Without names it runs all. Most figures are ratios of one run, and have goals. The exit code is 1 if
a goal is missed or a benchmark failed, and 2 for an unknown name. A failed benchmark does not stop
the others, and its section of the page stays as it was.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module

from tests.bench import page, table

NAMES = (
    *("on_air", "size", "post", "crowd", "queue", "process", "kit_at_rest", "long_queue"),
    *("pushes", "inbound", "webhooks", "silent_links", "consoles", "large_hub", "links"),
    *("team", "satellite_modems", "all_linked", "fan_out"),
)
"""Modules of `tests.bench` in order. Each has a `main` that prints its rows."""


def main(arguments: Sequence[str]) -> int:
    unknown = [name for name in arguments if name not in NAMES]
    if unknown:
        print(f"No benchmark {', '.join(unknown)}: there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    failed = []
    for name in arguments or NAMES:
        module = import_module(f"tests.bench.{name}")
        run: Callable[[], object] = module.main
        load = os.getloadavg()[0]
        print(f"\n{name}, at a load of {load:.1f}", flush=True)
        began = time.monotonic()
        table.shown.clear()
        # Some benchmarks read options of their own.
        sys.argv = [name]
        try:
            run()
            page.write_section(name, module.__doc__ or "", table.shown, load, NAMES)
        except Exception:
            traceback.print_exc()
            failed.append(name)
        print(f"{name} took {time.monotonic() - began:.0f} s", flush=True)
    if table.missed:
        print(f"\nGoals missed: {len(table.missed)}", *table.missed, sep="\n")
    if failed:
        print(f"\nFailed: {', '.join(failed)}")
    return 1 if table.missed or failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
