"""`python -m fieldagent`, the zipapp, and the installed command all start here."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from fieldagent.cli.kit.plain_run import plain_run

YOUNG_MAX = 10_000
"""Objects made before the next look for cycles: ours are few, and each look has a price, at the
start most of all."""


def main() -> int:
    """Carry out the command line and return its exit code: 130 after Ctrl-C, 141 where nobody reads
    the output any more."""
    gc.set_threshold(YOUNG_MAX)
    if isinstance(sys.stdout, TextIOWrapper):
        # As of standard error: a name that this terminal has no letters for ends no command.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return _carry_out(sys.argv[1:])
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain at exit either.
        sys.stdout = None
        return 141


def _carry_out(words: Sequence[str]) -> int:
    given = plain_run(words)
    if given is None:
        from fieldagent.cli.arguments import dispatch

        return dispatch(words)
    from fieldagent.cli.kit.run import run

    return run(given)


if __name__ == "__main__":
    sys.exit(main())
