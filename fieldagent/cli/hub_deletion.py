"""`fieldagent hub user|device|workspace delete`: for good, once it was said what goes."""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial

from fieldagent.cli.exit_codes import REFUSED
from fieldagent.cli.hub import show, with_store
from fieldagent.hub import deletion, subject
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Store
from fieldagent.hub.subject import Subject

LINKS_END = 5.0
"""Seconds in which every hub has heard that a link is to end."""


def delete(given: argparse.Namespace) -> int:
    def carry_out(_: HubSettings, store: Store) -> int:
        found = store.once(
            lambda db: subject.find(db, given.what, getattr(given, "workspace", ""), given.named)
        )
        plan = store.once(lambda db: deletion.plan(db, found))
        if not given.yes:
            show(given, {**plan, "deleted": False})
            print("Nothing is deleted yet: say so with --yes.", file=sys.stderr)
            return REFUSED
        _delete(store, found)
        return show(given, {**plan, "deleted": True})

    return with_store(given, carry_out)


def _delete(store: Store, found: Subject) -> None:
    if store.once(lambda db: deletion.begin(db, found, time.time())):
        time.sleep(LINKS_END)
    place: int | None = 0
    while place is not None:
        place = store.once(partial(deletion.delete_items, subject=found, after=place))
    for device in store.once(lambda db: subject.devices_of(db, found)):
        while store.once(partial(deletion.empty_device, device=device)):
            pass
    store.once(lambda db: deletion.end(db, found, time.time()))
