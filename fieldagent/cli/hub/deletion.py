"""`fieldagent hub user|device|workspace delete`: deletes data permanently, after showing which data
is affected.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress

from fieldagent.cli.hub.opened_store import Result, make_store_command, show
from fieldagent.hub.access import subject
from fieldagent.hub.access.directory import Row
from fieldagent.hub.access.subject import Subject
from fieldagent.hub.administration import deletion
from fieldagent.hub.administration.deletion import Pause
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Store
from fieldagent.system.exit_codes import REFUSED

NAMES_SHOWN_MAX = 20


@make_store_command
def delete(arguments: argparse.Namespace, _: HubSettings, store: Store) -> Result:
    """Print the data that would be deleted, and return REFUSED. If --yes is set, delete the data
    permanently. A hub may run at the same time.
    """
    data_subject = store.run_once(
        lambda db: subject.find_subject(
            db, arguments.what, getattr(arguments, "workspace", ""), arguments.named
        )
    )
    plan = store.run_once(lambda db: deletion.plan_deletion(db, data_subject))
    if not arguments.yes:
        show(arguments, _make_row(arguments, {**plan, "deleted": False}))
        print("Nothing was deleted. Use --yes to delete.", file=sys.stderr)
        return REFUSED
    _delete(store, data_subject)
    return _make_row(arguments, {**plan, "deleted": True})


def _make_row(arguments: argparse.Namespace, plan: Row) -> Row:
    """Return the plan in the form that is printed. Unless --json is set, long lists contain only
    their first names.
    """
    if arguments.json:
        return plan
    deletes = {
        kind: [
            *names[:NAMES_SHOWN_MAX],
            *([f"and {len(names) - NAMES_SHOWN_MAX} more"] if names[NAMES_SHOWN_MAX:] else []),
        ]
        for kind, names in plan["deletes"].items()
    }
    return {**plan, "deletes": deletes}


def _delete(store: Store, data_subject: Subject) -> None:
    linked = store.run_once(lambda db: deletion.begin_deletion(db, data_subject, time.time()))
    steps, result = deletion.list_steps(data_subject, linked, time.time), None
    with suppress(StopIteration):
        while True:
            step = steps.send(result)
            if isinstance(step, Pause):
                time.sleep(step.seconds)
            else:
                result = store.run_once(step)
