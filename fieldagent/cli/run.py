"""`fieldagent run`: the agent in the foreground, as systemd starts it."""

from __future__ import annotations

import argparse
import logging
import select
import sys
from collections.abc import Callable
from typing import TextIO

import trio

from fieldagent.agent import agent
from fieldagent.agent.settings import default_path, load
from fieldagent.cli.exit_codes import IO_FAILED, MISSING, NEWER, OK, SETTINGS, TAKEN, UNAVAILABLE
from fieldagent.cli.terminal import escaped
from fieldagent.http.listeners import ListenFailed, PortTaken
from fieldagent.store.group import StoreFailed
from fieldagent.store.trouble import Newer, Unusable
from fieldagent.system.error_groups import first_error
from fieldagent.system.properties import InvalidSettings

log = logging.getLogger(__name__)

PIECE = 1024
"""Characters that a pipe which is not full has room for (PIPE_BUF bytes)."""


def has_room(stream: TextIO) -> bool:
    """Whether a line can be written at once. A pipe that nobody reads is full at some time, and
    to wait for its reader would stop everything else."""
    watch = select.poll()
    watch.register(stream, select.POLLOUT)
    return bool(watch.poll(0))


class Unhurried(logging.StreamHandler[TextIO]):
    """Leaves out what nobody reads."""

    def emit(self, record: logging.LogRecord) -> None:
        if has_room(self.stream):
            super().emit(record)


class EscapingFormatter(logging.Formatter):
    """Each record is one line, but for the traceback of a fault of ours."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        record.message = escaped(record.message)
        return super().formatMessage(record)


def start_logging(verbose: bool) -> None:
    """To standard error; under systemd the journal adds the time itself."""
    line = "%(levelname)-7s %(message)s"
    if sys.stderr.isatty():
        line = f"%(asctime)s {line}"
    handler = Unhurried()
    handler.setFormatter(EscapingFormatter(line, datefmt="%H:%M:%S"))
    level = logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(handlers=[handler], level=level)


def emit(line: str) -> None:
    """A line that the inbound hook wrote: as it is for a program, escaped for people."""
    if sys.stdout.isatty():
        line = escaped(line)
    for at in range(0, len(line), PIECE):
        if has_room(sys.stdout):
            print(line[at : at + PIECE], end="", flush=True)
    if has_room(sys.stdout):
        print(flush=True)


def run(given: argparse.Namespace) -> int:
    start_logging(given.verbose)
    try:
        settings = load(given.config)
    except (InvalidSettings, OSError) as error:
        code = refuse_settings(error)
        if code == SETTINGS:
            print("fieldagent: once corrected, try `fieldagent check`", file=sys.stderr)
        return code
    if not (settings.satellite_port or settings.radio_port or settings.hub_address):
        keys = "satellite-port, radio-port or hub-address"
        where = given.config or default_path()
        log.warning("no channel is configured: set %s in %s", keys, where)
    return ended(lambda: trio.run(agent.run, settings, emit))


def refuse_settings(error: InvalidSettings | OSError) -> int:
    print(f"fieldagent: {error}", file=sys.stderr)
    return MISSING if isinstance(error, FileNotFoundError) else SETTINGS


def ended(start: Callable[[], None]) -> int:
    """Run it, and turn what may stop an agent into a message and an exit code."""
    try:
        start()
    except* (agent.AlreadyRunning, ListenFailed, StoreFailed, Unusable, OSError) as group:
        error = first_error(group)
        print(f"fieldagent: {error}", file=sys.stderr)
        code = _code_of(error)
    else:
        code = OK
    return code


def _code_of(error: BaseException) -> int:
    match error:
        case Newer():
            return NEWER
        case StoreFailed() | Unusable():
            return IO_FAILED
        case PortTaken() | agent.AlreadyRunning():
            return TAKEN
    return UNAVAILABLE
