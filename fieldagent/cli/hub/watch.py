"""`fieldagent hub contact watch …`: the watch at the desk, set at the hub's machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from fieldagent.cli.hub.opened_store import once, show, show_list
from fieldagent.hub.access import directory
from fieldagent.hub.api import watch_desk
from fieldagent.hub.records import shifts
from fieldagent.hub.records.shifts import Hours
from fieldagent.hub.store.contract import Db
from fieldagent.system.exit_codes import OK


def standing(arguments: argparse.Namespace) -> int:
    """Print the watch hours, the dispatchers on watch, and their hand-overs."""

    def look(db: Db, now: float) -> int:
        status = shifts.standing(db, directory.workspace_of(db, arguments.workspace), now)
        if arguments.json:
            return show(arguments, status)
        print(f"hours: {status['hours'] or 'none: no watch is required'}")
        if status["nobodySince"] is not None:
            print("NO ONE IS ON WATCH: use `fieldagent hub contact watch take USER`")
        rows = [
            {
                "user": each["user"]["name"],
                "since": each["since"],
                "until": each["until"],
                "handsOverTo": each["handsOverTo"] and each["handsOverTo"]["name"],
                "note": each["note"],
            }
            for each in status["onWatch"]
        ]
        return show_list(arguments, rows)

    return once(arguments, look)


def take(arguments: argparse.Namespace) -> int:
    """Put a dispatcher on watch for `--for`, and print the watch."""
    return _act(
        arguments,
        lambda db, workspace, member, now: watch_desk.take(
            db, workspace, member, arguments.length, now
        ),
    )


def hand_over(arguments: argparse.Namespace) -> int:
    """Ask another dispatcher to take the watch, and print it. It stays unchanged until then."""
    return _act(
        arguments,
        lambda db, place, who, now: watch_desk.hand_over(
            db, place, who, directory.member_of(db, place, arguments.to), arguments.note, now
        ),
    )


def end(arguments: argparse.Namespace) -> int:
    """End a user's watch, and print the new watch. Refused if they are not on watch."""
    return _act(
        arguments,
        lambda db, place, who, now: watch_desk.end(db, place, who, arguments.note, now),
    )


def _act(arguments: argparse.Namespace, deed: Callable[[Db, int, int, float], None]) -> int:
    def carry_out(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        deed(db, workspace, directory.member_of(db, workspace, arguments.user), now)
        return OK

    return once(arguments, carry_out) or standing(arguments)


def hours(arguments: argparse.Namespace) -> int:
    """Set the hours in which a dispatcher must be on watch, in UTC; none: no hours."""

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        watch_hours = Hours(*arguments.hours) if arguments.hours else None
        shifts.set_hours(db, workspace, watch_hours, now)
        return show(arguments, {"hours": str(watch_hours or "none")})

    return once(arguments, change)
