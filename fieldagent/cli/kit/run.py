"""`fieldagent run`: the agent in the foreground, as systemd starts it."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from fieldagent.agent import agent
from fieldagent.agent.only_one import AlreadyRunning
from fieldagent.agent.settings import get_channels, get_default_path, load
from fieldagent.cli.kit.plain_run import RunArguments
from fieldagent.http.listeners import ListenFailed, PortTaken
from fieldagent.store.group import StoreFailed
from fieldagent.store.trouble import Unusable, WrittenByOtherVersion
from fieldagent.system.error_groups import get_first_error
from fieldagent.system.exit_codes import IO_FAILED, NEWER, OK, SETTINGS, TAKEN, UNAVAILABLE
from fieldagent.system.log_lines import emit, print_failure, refuse_settings, start_logging
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.signals import StopRequests, run_heeding

log = logging.getLogger(__name__)


def run(arguments: RunArguments) -> int:
    """Run the agent until it is stopped. If the settings are wrong, the agent does not start. If
    there is no channel, the agent logs a warning and runs.
    """
    start_logging(arguments.verbose)
    try:
        settings = load(arguments.config)
    except (InvalidSettings, OSError) as error:
        code = refuse_settings(error)
        if code == SETTINGS:
            option = f" --config {arguments.config}" if arguments.config else ""
            print_failure(f"once corrected, try `fieldagent check{option}`")
        return code
    if not get_channels(settings):
        keys = "satellite-port, radio-port or hub-address"
        settings_path = arguments.config or get_default_path()
        log.warning("no channel is configured: set %s in %s", keys, settings_path)
    return run_to_end(partial(agent.run, settings, emit), settings.state_directory)


def run_to_end(program: Callable[[StopRequests], Awaitable[None]], state: Path) -> int:
    """Run a program as the owner of its state directory. Errors that stop it become a message and
    an exit code.
    """
    try:
        if os.geteuid() == 0:
            # Import it only here. The systemd units do not run as root and so save the memory.
            from fieldagent.system.as_owner import switch_to_owner_of

            switch_to_owner_of(state)
        run_heeding(program)
    except* (AlreadyRunning, ListenFailed, StoreFailed, Unusable, OSError) as group:
        error = get_first_error(group)
        print_failure(str(error))
        code = _get_code(error)
    else:
        code = OK
    return code


def _get_code(error: BaseException) -> int:
    match error:
        case WrittenByOtherVersion():
            return NEWER
        case StoreFailed() | Unusable():
            return IO_FAILED
        case PortTaken() | AlreadyRunning():
            return TAKEN
    return UNAVAILABLE
