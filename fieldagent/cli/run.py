"""`fieldagent run`: the agent in the foreground, as systemd starts it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from fieldagent.agent import agent
from fieldagent.agent.only_one import AlreadyRunning
from fieldagent.agent.settings import default_path, load
from fieldagent.cli.exit_codes import IO_FAILED, MISSING, NEWER, OK, SETTINGS, TAKEN, UNAVAILABLE
from fieldagent.cli.log_lines import complain, has_room, start_logging
from fieldagent.cli.plain_run import RunArguments
from fieldagent.cli.terminal import escaped
from fieldagent.http.listeners import ListenFailed, PortTaken
from fieldagent.store.group import StoreFailed
from fieldagent.store.trouble import Newer, Unusable
from fieldagent.system.error_groups import first_error
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.signals import Asks, run_heeding

log = logging.getLogger(__name__)

PIECE = 1024
"""Characters that a pipe which is not full has room for (PIPE_BUF bytes)."""


def emit(line: str) -> None:
    """A line that the inbound hook wrote: as it is for a program, escaped for people."""
    if sys.stdout.isatty():
        line = escaped(line)
    for at in range(0, len(line), PIECE):
        if has_room(sys.stdout):
            print(line[at : at + PIECE], end="", flush=True)
    if has_room(sys.stdout):
        print(flush=True)


def run(given: RunArguments) -> int:
    start_logging(given.verbose)
    try:
        settings = load(given.config)
    except (InvalidSettings, OSError) as error:
        code = refuse_settings(error)
        if code == SETTINGS:
            complain("once corrected, try `fieldagent check`")
        return code
    if not (settings.satellite_port or settings.radio_port or settings.hub_address):
        keys = "satellite-port, radio-port or hub-address"
        where = given.config or default_path()
        log.warning("no channel is configured: set %s in %s", keys, where)
    return ended(partial(agent.run, settings, emit))


def refuse_settings(error: InvalidSettings | OSError) -> int:
    complain(str(error))
    return MISSING if isinstance(error, FileNotFoundError) else SETTINGS


def ended(program: Callable[[Asks], Awaitable[None]]) -> int:
    """Run it, and turn what may stop an agent into a message and an exit code."""
    try:
        run_heeding(program)
    except* (AlreadyRunning, ListenFailed, StoreFailed, Unusable, OSError) as group:
        error = first_error(group)
        complain(str(error))
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
        case PortTaken() | AlreadyRunning():
            return TAKEN
    return UNAVAILABLE
