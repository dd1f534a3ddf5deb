"""`fieldagent hub tracker source` and `tracker`: positions of people without a kit."""

from __future__ import annotations

import argparse
import time

from fieldagent.cli.hub.opened_store import once, show, show_list, with_store
from fieldagent.hub.access import credentials, directory
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.tracker import records
from fieldagent.hub.tracker.known import tracker_kinds
from fieldagent.hub.tracker.service import PATH


def source_add(arguments: argparse.Namespace) -> int:
    """Add an address for trackers and print it for each kind, only this time. Anyone who knows it
    can report.
    """

    def add(settings: HubSettings, store: Store) -> int:
        id_, secret = store.once(
            lambda db: credentials.add_source(
                db, directory.workspace_of(db, arguments.workspace), arguments.name, now=time.time()
            )
        )
        hub = settings.console_address or "https://YOUR-HUB"
        places = {name: f"{hub}{PATH}{name}/{secret}" for name in tracker_kinds()}
        return show(arguments, {"id": id_, **places}, secret_names=tuple(places))

    return with_store(arguments, add)


def add(arguments: argparse.Namespace) -> int:
    """Add a tracker of a user, as a device that cannot receive, and print its number. Refused if
    the workspace already has its --id.
    """

    def carry_out(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        member = directory.member_of(db, workspace, arguments.user)
        ident = arguments.id.strip()
        id_ = records.add(
            db, workspace, member, arguments.name, ident, every=arguments.every, now=now
        )
        return show(arguments, {"id": id_, "tracker": ident})

    return once(arguments, carry_out)


def listing(arguments: argparse.Namespace) -> int:
    """List the trackers of a workspace with the time of their last position."""
    return once(
        arguments,
        lambda db, now: show_list(
            arguments, records.listing(db, directory.workspace_of(db, arguments.workspace))
        ),
    )
