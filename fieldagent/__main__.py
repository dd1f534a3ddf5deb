"""`python -m fieldagent`, the zipapp, and the installed command all start here."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from errno import ENOSPC
from io import TextIOWrapper

from fieldagent.cli.kit.plain_run import plain_run
from fieldagent.system.exit_codes import IO_FAILED

YOUNG_MAX = 10_000
"""Objects made before the next look for cycles: ours are few, and each look has a price, at the
start most of all."""


def main() -> int:
    """Carry out the command line and return its exit code: 130 after Ctrl-C, 141 where nobody reads
    the output any more, 74 where there is no room for it."""
    gc.set_threshold(YOUNG_MAX)
    if isinstance(sys.stdout, TextIOWrapper):
        # As of standard error: a name that this terminal has no letters for ends no command.
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stdin is None:
        # Closed: nobody says anything.
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    asked: list[int] = []
    try:
        code = _carry_out(sys.argv[1:], asked)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _interrupted(asked)
    except BaseExceptionGroup as group:
        # As trio's nurseries raise it.
        if group.split(KeyboardInterrupt)[1] is not None:
            raise
        return _interrupted(asked)
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain at exit either.
        sys.stdout = None
        return 141
    except OSError as error:
        if error.errno != ENOSPC:
            raise
        sys.stdout = None
        from fieldagent.system.log_lines import complain

        complain("no room is left where it writes, or its output goes")
        return IO_FAILED


def _interrupted(asked: Sequence[int]) -> int:
    for number in asked:
        # Whoever asked is told how it ended as if nothing had been cleared up before.
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    return 130


def _end_as_by_ctrl_c(asked: list[int]) -> None:
    """Let SIGTERM, and SIGHUP where a terminal is closed, interrupt a command, so that it removes
    the folders it made and ends what it began. `asked` is told which came."""

    def interrupt(number: int, frame: object) -> None:
        asked.append(number)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            # Begun in the background by a shell.
            raise KeyboardInterrupt
        # By the handler of whoever runs now: trio lets its tasks come to an end.
        signal.raise_signal(signal.SIGINT)

    for number in (signal.SIGTERM, signal.SIGHUP):
        # `nohup` has it ignored, and is to be heeded.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, interrupt)


def _carry_out(words: Sequence[str], asked: list[int]) -> int:
    arguments = plain_run(words)
    if arguments is None:
        _end_as_by_ctrl_c(asked)
        from fieldagent.cli.arguments import dispatch

        return dispatch(words)
    from fieldagent.cli.kit.run import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
