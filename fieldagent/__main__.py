"""Entry point of `python -m fieldagent`, the zipapp, and the installed command."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from errno import ENOSPC
from io import TextIOWrapper

from fieldagent.cli.kit.plain_run import parse_plain_run
from fieldagent.system.exit_codes import IO_FAILED

YOUNG_MAX = 10_000
"""Number of new objects before the next garbage collection of cycles. The program makes few cycles,
and each collection costs time, most of all at the start."""


def main() -> int:
    """Run the command line and return its exit code: 130 after Ctrl-C, 141 if the reader has closed
    the output, 74 if there is no space for the output.
    """
    gc.set_threshold(YOUNG_MAX)
    if isinstance(sys.stdout, TextIOWrapper):
        # A name that the terminal cannot show must not end a command, so write it with escapes, as
        # standard error does.
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stdin is None:
        # Standard input is closed, so give the program an empty one.
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    asked: list[int] = []
    try:
        code = _carry_out(sys.argv[1:], asked)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _exit_interrupted(asked)
    except BaseExceptionGroup as group:
        # trio's nurseries raise KeyboardInterrupt in a group.
        if group.split(KeyboardInterrupt)[1] is not None:
            raise
        return _exit_interrupted(asked)
    except BrokenPipeError:
        # The program that reads the output has closed it. Python must not print an error at exit
        # either.
        sys.stdout = None
        return 141
    except OSError as error:
        if error.errno != ENOSPC:
            raise
        sys.stdout = None
        from fieldagent.system.log_lines import print_failure

        print_failure("the disk is full: the output cannot be written")
        return IO_FAILED


def _exit_interrupted(asked: Sequence[int]) -> int:
    for number in asked:
        # Raise the signal again, so that the parent sees the same exit as without a cleanup.
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    return 130


def _end_as_by_ctrl_c(asked: list[int]) -> None:
    """Let SIGTERM, and SIGHUP when a terminal is closed, interrupt a command, so that it removes
    its folders and ends its children. `asked` gets the signal.
    """

    def interrupt(number: int, frame: object) -> None:
        asked.append(number)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            # A shell that starts a program in the background makes it ignore SIGINT, so raise the
            # exception here.
            raise KeyboardInterrupt
        # Call the current handler of SIGINT, because trio's handler lets the tasks end first.
        signal.raise_signal(signal.SIGINT)

    for number in (signal.SIGTERM, signal.SIGHUP):
        # If the process ignores the signal, for example under `nohup`, keep it ignored.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, interrupt)


def _carry_out(words: Sequence[str], asked: list[int]) -> int:
    arguments = parse_plain_run(words)
    if arguments is None:
        _end_as_by_ctrl_c(asked)
        from fieldagent.cli.arguments import dispatch

        return dispatch(words)
    from fieldagent.cli.kit.run import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
