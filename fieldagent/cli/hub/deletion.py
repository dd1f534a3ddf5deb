"""`fieldagent hub user|device|workspace delete`: for good, once it was said what goes."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress

from fieldagent.cli.hub.opened_store import show, with_store
from fieldagent.hub.access import subject
from fieldagent.hub.access.directory import Row
from fieldagent.hub.access.subject import Subject
from fieldagent.hub.administration import deletion
from fieldagent.hub.administration.deletion import Pause
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Store
from fieldagent.system.exit_codes import REFUSED

NAMED = 20


def delete(arguments: argparse.Namespace) -> int:
    """Print what would go, and return REFUSED; with --yes delete it for good, also beside a hub
    that runs."""

    def carry_out(_: HubSettings, store: Store) -> int:
        data_subject = store.once(
            lambda db: subject.find(
                db, arguments.what, getattr(arguments, "workspace", ""), arguments.named
            )
        )
        plan = store.once(lambda db: deletion.plan(db, data_subject))
        if not arguments.yes:
            show(arguments, _told(arguments, {**plan, "deleted": False}))
            print("Nothing is deleted yet: say so with --yes.", file=sys.stderr)
            return REFUSED
        _delete(store, data_subject)
        return show(arguments, _told(arguments, {**plan, "deleted": True}))

    return with_store(arguments, carry_out)


def _told(arguments: argparse.Namespace, plan: Row) -> Row:
    """Without --json, of very many names the first ones."""
    if arguments.json:
        return plan
    deletes = {
        what: [*names[:NAMED], *([f"and {len(names) - NAMED} more"] if names[NAMED:] else [])]
        for what, names in plan["deletes"].items()
    }
    return {**plan, "deletes": deletes}


def _delete(store: Store, data_subject: Subject) -> None:
    linked = store.once(lambda db: deletion.begin(db, data_subject, time.time()))
    steps, result = deletion.steps(data_subject, linked, time.time), None
    with suppress(StopIteration):
        while True:
            step = steps.send(result)
            if isinstance(step, Pause):
                time.sleep(step.seconds)
            else:
                result = store.once(step)
