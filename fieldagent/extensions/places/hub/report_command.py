"""`fieldagent hub report`: writes a report of a kit's week."""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial

from fieldagent.cli.hub.opened_store import run_with_store
from fieldagent.extensions.places.hub import kit_week
from fieldagent.extensions.places.hub.documents import FORMATS
from fieldagent.extensions.places.hub.kit_week import KitWeek
from fieldagent.extensions.places.hub.week import WrongWeek, find_week, parse_week
from fieldagent.hub.access import directory
from fieldagent.hub.settings import HubSettings, find_price
from fieldagent.hub.store.contract import Db, Store
from fieldagent.system.exit_codes import OK, USAGE
from fieldagent.system.log_lines import print_failure


def write(arguments: argparse.Namespace) -> int:
    """Write the report to standard output."""
    now = time.time()
    try:
        week = find_week(now) if arguments.week is None else parse_week(arguments.week)
    except WrongWeek as wrong:
        print_failure(str(wrong))
        return USAGE

    def write_week(settings: HubSettings, store: Store) -> int:
        def find(db: Db) -> KitWeek:
            workspace = directory.find_workspace(db, arguments.workspace)
            device = directory.find_device_named(db, workspace, arguments.kit)
            return kit_week.read_kit_week(
                db, workspace, device, week, partial(find_price, settings), now
            )

        report = store.run_once(find)
        if arguments.json:
            print(json.dumps(kit_week.encode_week(report)))
            return OK
        sys.stdout.buffer.write(FORMATS[arguments.format].write(report))
        sys.stdout.buffer.flush()
        return OK

    return run_with_store(arguments, write_week)
