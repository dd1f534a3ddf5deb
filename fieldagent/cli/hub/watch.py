"""`fieldagent hub watch …`: who is on watch at the desk, said at the machine of the hub."""

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


def standing(given: argparse.Namespace) -> int:
    """Print the hours of watch, who is on watch, and whom they hand over to."""

    def look(db: Db, now: float) -> int:
        told = shifts.standing(db, directory.workspace_of(db, given.workspace), now)
        if given.json:
            return show(given, told)
        print(f"hours: {told['hours'] or 'none: nobody has to be on watch'}")
        if told["nobodySince"] is not None:
            print("NOBODY IS ON WATCH: `fieldagent hub watch take USER`")
        rows = [
            {
                "user": each["user"]["name"],
                "since": each["since"],
                "until": each["until"],
                "handsOverTo": each["handsOverTo"] and each["handsOverTo"]["name"],
                "note": each["note"],
            }
            for each in told["onWatch"]
        ]
        return show_list(given, rows)

    return once(given, look)


def take(given: argparse.Namespace) -> int:
    """Put a dispatcher on watch for `--for`, and print who is."""
    return _act(
        given,
        lambda db, workspace, member, now: watch_desk.take(
            db, workspace, member, given.length, now
        ),
    )


def hand_over(given: argparse.Namespace) -> int:
    """Ask another dispatcher to take the watch, and print who has it; until they do, it stays."""
    return _act(
        given,
        lambda db, place, who, now: watch_desk.hand_over(
            db, place, who, directory.member_of(db, place, given.to), given.note, now
        ),
    )


def end(given: argparse.Namespace) -> int:
    """End a user's watch, and print who is on watch then. Refused where they are not."""
    return _act(
        given,
        lambda db, place, who, now: watch_desk.end(db, place, who, given.note, now),
    )


def _act(given: argparse.Namespace, deed: Callable[[Db, int, int, float], None]) -> int:
    def carry_out(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        deed(db, workspace, directory.member_of(db, workspace, given.user), now)
        return OK

    return once(given, carry_out) or standing(given)


def hours(given: argparse.Namespace) -> int:
    """Set when somebody is to be on watch, in UTC; none: nobody has to be."""

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        found = Hours(*given.hours) if given.hours else None
        shifts.set_hours(db, workspace, found, now)
        return show(given, {"hours": str(found or "none")})

    return once(given, change)
