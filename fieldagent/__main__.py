"""`python -m fieldagent`, the zipapp, and the installed command all start here."""

from __future__ import annotations

import gc
import sys

from fieldagent.cli.arguments import dispatch

YOUNG_MAX = 10_000
"""Objects made before the next look for cycles: ours are few, and each look has a price, at the
start most of all."""


def main() -> int:
    gc.set_threshold(YOUNG_MAX)
    return dispatch(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
