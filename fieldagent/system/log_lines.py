"""What a program tells of itself, line by line: to a terminal, a pipe, or systemd's journal."""

from __future__ import annotations

import logging
import os
import select
import sys
from collections.abc import Mapping
from typing import TextIO

from fieldagent.system.exit_codes import MISSING, SETTINGS
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.terminal import escaped

PIECE = 1024
"""Characters that a pipe which is not full has room for (PIPE_BUF bytes)."""


def has_room(stream: TextIO) -> bool:
    """Return whether a line can be written at once. A pipe that nobody reads is full at some time,
    and to wait for its reader would stop everything else."""
    watch = select.poll()
    watch.register(stream, select.POLLOUT)
    return bool(watch.poll(0))


def start_logging(verbose: bool) -> None:
    """Log to standard error; the journal adds time and severity itself."""
    line = "%(levelname)-7s %(message)s"
    if sys.stderr.isatty():
        line = f"%(asctime)s {line}"
    formatter = EscapingFormatter(line, datefmt="%H:%M:%S")
    if is_journal(sys.stderr):
        formatter = JournalFormatter("%(message)s")
    handler = Unhurried()
    handler.setFormatter(formatter)
    level = logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(handlers=[handler], level=level)


def complain(text: str) -> None:
    """Say why the program ends, or does not start."""
    line = f"fieldagent: {text}"
    print(_graded(line, logging.ERROR) if is_journal(sys.stderr) else line, file=sys.stderr)


def refuse_settings(error: InvalidSettings | OSError) -> int:
    """Say why settings cannot be used, and return the exit code: MISSING or SETTINGS."""
    complain(str(error))
    return MISSING if isinstance(error, FileNotFoundError) else SETTINGS


def emit(line: str) -> None:
    """Print a line that the inbound hook wrote: as it is for a program, escaped for people."""
    if sys.stdout.isatty():
        line = escaped(line)
    for at in range(0, len(line), PIECE):
        if has_room(sys.stdout):
            print(line[at : at + PIECE], end="", flush=True)
    if has_room(sys.stdout):
        print(flush=True)


def is_journal(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the journal reads it: JOURNAL_STREAM names its device and inode,
    systemd.exec(5)."""
    try:
        at = os.fstat(stream.fileno())
    except (OSError, ValueError):  # it was closed, or is none of the system's
        return False
    return environ.get("JOURNAL_STREAM") == f"{at.st_dev}:{at.st_ino}"


class Unhurried(logging.StreamHandler[TextIO]):
    """Leaves out what nobody reads."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or drop it where the stream would have to be waited for."""
        if has_room(self.stream):
            super().emit(record)


class EscapingFormatter(logging.Formatter):
    """Each record is one line, but for the traceback of a fault of ours."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Escape the text, and not the traceback behind it."""
        record.message = escaped(record.message)
        return super().formatMessage(record)


class JournalFormatter(EscapingFormatter):
    """Each line begins with its severity."""

    def format(self, record: logging.LogRecord) -> str:
        """Put the severity before each line, those of a traceback too (sd-daemon(3))."""
        return _graded(super().format(record), record.levelno)


def _graded(text: str, level: int) -> str:
    """The journal takes each line by itself. The numbers are those of sd-daemon(3)."""
    severity = 7 if level < logging.INFO else 6 if level < logging.WARNING else 4
    severity = 3 if level >= logging.ERROR else severity
    return "\n".join(f"<{severity}>{line}" for line in text.split("\n"))
