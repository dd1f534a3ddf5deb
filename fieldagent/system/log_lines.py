"""Writes the log lines of a program to a terminal, a pipe, or systemd's journal."""

from __future__ import annotations

import logging
import os
import select
import sys
from collections.abc import Mapping
from typing import TextIO

from fieldagent.system.exit_codes import MISSING, SETTINGS
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.terminal import escape_line

PIECE = 1024
"""Number of characters that always fit into a pipe that is ready for writing (PIPE_BUF bytes)."""


def has_room(stream: TextIO) -> bool:
    """Return True if PIECE characters can be written without waiting. A pipe from which no program
    reads becomes full, and waiting for space would block this program.
    """
    watch = select.poll()
    watch.register(stream, select.POLLOUT)
    return bool(watch.poll(0))


def start_logging(verbose: bool) -> None:
    """Log to standard error. If the output goes to systemd's journal, the journal adds the time
    itself.
    """
    line = "%(levelname)-7s %(message)s"
    if sys.stderr.isatty():
        line = f"%(asctime)s {line}"
    formatter = EscapingFormatter(line, datefmt="%H:%M:%S")
    if is_journal(sys.stderr):
        formatter = JournalFormatter("%(message)s")
    handler = DroppingHandler()
    handler.setFormatter(formatter)
    level = logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(handlers=[handler], level=level)


def print_failure(text: str) -> None:
    """Print the reason why the program ends or does not start."""
    line = f"fieldagent: {text}"
    print(_add_severity(line, logging.ERROR) if is_journal(sys.stderr) else line, file=sys.stderr)


def refuse_settings(error: InvalidSettings | OSError) -> int:
    """Print the faults of the settings, and return the exit code: MISSING or SETTINGS."""
    print_failure(str(error))
    return MISSING if isinstance(error, FileNotFoundError) else SETTINGS


def emit(line: str) -> None:
    """Print a line of the inbound hook to standard output, escaped if this is a terminal. Parts of
    the line for which a pipe has no space are dropped.
    """
    if sys.stdout.isatty():
        line = escape_line(line)
    for at in range(0, len(line), PIECE):
        if has_room(sys.stdout):
            print(line[at : at + PIECE], end="", flush=True)
    if has_room(sys.stdout):
        print(flush=True)


def is_journal(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Return True if the journal reads the stream. JOURNAL_STREAM contains the stream's device and
    inode (systemd.exec(5)).
    """
    try:
        at = os.fstat(stream.fileno())
    except (OSError, ValueError):  # The stream was closed, or has no file descriptor.
        return False
    return environ.get("JOURNAL_STREAM") == f"{at.st_dev}:{at.st_ino}"


class DroppingHandler(logging.StreamHandler[TextIO]):
    """Log handler that drops records instead of waiting for the stream."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or drop it if the stream is not ready."""
        if has_room(self.stream):
            super().emit(record)


class EscapingFormatter(logging.Formatter):
    """Formatter that writes each record as one line, except the traceback of a bug."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Escape the message of a record, but not the traceback after it."""
        record.message = escape_line(record.message)
        return super().formatMessage(record)


class JournalFormatter(EscapingFormatter):
    """Formatter that begins each line with its severity."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record with the severity before each line, including the lines of a traceback
        (sd-daemon(3)).
        """
        return _add_severity(super().format(record), record.levelno)


def _add_severity(text: str, level: int) -> str:
    """Prefix every line with its severity (sd-daemon(3)), because journald reads each line
    separately.
    """
    severity = 7 if level < logging.INFO else 6 if level < logging.WARNING else 4
    severity = 3 if level >= logging.ERROR else severity
    return "\n".join(f"<{severity}>{line}" for line in text.split("\n"))
