"""Runs commands one after the other, each in a fork of one process that has started once.

Reads a JSON list of [words, seconds] and prints a JSON list of [exit code, output]. A command that
has not ended after its seconds gets the code -14 (SIGALRM).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from typing import NoReturn

import fieldagent.cli.arguments
import fieldagent.cli.hub.directory
import fieldagent.cli.kit.check
import fieldagent.extensions.fleet.settings_command
import fieldagent.extensions.fleet.update_command
from fieldagent.__main__ import main


def run(words: list[str], seconds: float) -> tuple[int, str]:
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            _carry_out(words, seconds, output.fileno())
        _, status = os.waitpid(child, 0)
        output.seek(0)
        return os.waitstatus_to_exitcode(status), output.read().decode(errors="replace")


def _carry_out(words: list[str], seconds: float, output: int) -> NoReturn:
    code = 1
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        stdin = os.memfd_create("input")
        os.write(stdin, b"a phrase of several words\n" * 3)
        os.lseek(stdin, 0, os.SEEK_SET)
        for number, file in enumerate((stdin, output, output)):
            os.dup2(file, number)
        sys.stdin = os.fdopen(0)
        sys.argv = ["fieldagent", *words]
        code = main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


if __name__ == "__main__":
    assert fieldagent.cli.arguments
    assert fieldagent.cli.kit.check and fieldagent.cli.hub.directory
    assert (
        fieldagent.extensions.fleet.settings_command and fieldagent.extensions.fleet.update_command
    )
    json.dump([run(words, seconds) for words, seconds in json.load(sys.stdin)], sys.stdout)
