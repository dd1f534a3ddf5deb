"""`fieldagent hub tracker source` and `fieldagent hub tracker`: positions of people without a
kit.
"""

from __future__ import annotations

import argparse
import time

from fieldagent.cli.hub.opened_store import Call, Result, make_store_command, make_transaction, show
from fieldagent.extensions.places.hub.tracker_door import KINDS, PATH
from fieldagent.hub.access import credentials, directory
from fieldagent.hub.access.directory import Row, make_named_rows
from fieldagent.hub.field import trackers
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Db, Store


@make_store_command
def add_source(arguments: argparse.Namespace, settings: HubSettings, store: Store) -> Result:
    """Add an address for trackers. Print the address once, in the form for each kind of tracker.
    Anyone who knows the address can send reports.
    """
    id_, secret = store.run_once(
        lambda db: credentials.add_source(
            db, directory.find_workspace(db, arguments.workspace), arguments.name, now=time.time()
        )
    )
    hub = settings.console_address or "https://YOUR-HUB"
    places = {name: f"{hub}{PATH}{name}/{secret}" for name in KINDS}
    return show(arguments, {"id": id_, **places}, secret_names=tuple(places))


@make_transaction
def add(call: Call) -> Result:
    """Add a tracker of a user and print its number. The tracker is a device that cannot receive
    anything. Raises Refused if a tracker of the workspace has the same `--id`.
    """
    arguments, ident = call.arguments, call.arguments.id.strip()
    id_ = trackers.add_tracker(
        *call.here, call.member, arguments.name, ident, interval_s=arguments.every, now=call.now
    )
    return {"id": id_, "tracker": ident}


@make_transaction
def show_trackers(call: Call) -> Result:
    """List the trackers of a workspace. Each has the time of its last position."""
    return list_trackers(*call.here)


def list_trackers(db: Db, workspace: int) -> list[Row]:
    """Return all trackers of a workspace. Times are Unix seconds, or None if there was no
    position.
    """
    return make_named_rows(
        db,
        "SELECT device, device.name, member.name, ident, every, alarm, CASE WHEN at > 0 THEN at END"
        " FROM tracker JOIN device ON device.id = device JOIN member ON member.id = device.member"
        " WHERE tracker.workspace = ? ORDER BY device",
        ("id", "name", "user", "tracker", "every", "alarm", "positionAt"),
        workspace,
    )
