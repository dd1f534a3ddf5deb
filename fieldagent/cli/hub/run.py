"""`fieldagent hub run`: the hub in the foreground."""

from __future__ import annotations

import argparse
import logging
import os
import signal
from functools import partial

from fieldagent.cli.hub.opened_store import run_with_store
from fieldagent.http.listeners import ListenFailed, PortTaken
from fieldagent.hub.settings import ENVIRONMENT, HubSettings
from fieldagent.hub.store.contract import Store
from fieldagent.store.group import StoreFailed
from fieldagent.system.error_groups import get_first_error
from fieldagent.system.exit_codes import IO_FAILED, OK, TAKEN, UNAVAILABLE
from fieldagent.system.log_lines import emit, print_failure, start_logging
from fieldagent.system.properties import get_variables
from fieldagent.wire.errors import LocalProtocolError

log = logging.getLogger(__name__)

EXIT_CODES: dict[type[BaseException], int] = {PortTaken: TAKEN, StoreFailed: IO_FAILED}


def run(arguments: argparse.Namespace) -> int:
    """Run the hub until a signal stops it."""
    from fieldagent.hub import hub
    from fieldagent.system.signals import run_heeding

    start_logging(arguments.verbose)
    if names := get_variables(os.environ, ENVIRONMENT).values():
        log.info("these variables replace settings of the file: %s", ", ".join(names))

    def serve(settings: HubSettings, store: Store) -> int:
        try:
            run_heeding(partial(hub.run, settings, store, emit), signal.SIGHUP)
        except* (ListenFailed, LocalProtocolError, OSError, StoreFailed) as group:
            error = get_first_error(group)
            print_failure(str(error))
            return_code.append(EXIT_CODES.get(type(error), UNAVAILABLE))
        return return_code[0] if return_code else OK

    return_code: list[int] = []
    return run_with_store(arguments, serve, create=True)
