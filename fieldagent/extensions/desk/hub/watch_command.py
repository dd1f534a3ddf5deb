"""`fieldagent hub contact watch …`: shows and changes the watch of dispatchers, on the hub's
machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from fieldagent.cli.hub.opened_store import Call, Result, make_transaction, show_list
from fieldagent.extensions.desk.hub import shifts
from fieldagent.extensions.desk.hub.shifts import Hours
from fieldagent.hub.access import directory
from fieldagent.system.exit_codes import OK


@make_transaction
def show_watch(call: Call) -> Result:
    """Print the watch hours, the dispatchers on watch, and their hand-overs."""
    status = shifts.describe_watch(*call.here, call.now)
    if call.arguments.json:
        return status
    print(f"hours: {status['hours'] or 'none: no watch is required'}")
    if status["unattendedSince"] is not None:
        print("NO ONE IS ON WATCH: use `fieldagent hub contact watch take USER`")
    elif not status["onWatch"]:
        print("no one is on watch")
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
    return show_list(call.arguments, rows) if rows else OK


def _make_watch_change(operation: Callable[[Call], None]) -> Callable[[argparse.Namespace], int]:
    """Return the function of a command that changes the watch and then prints it."""

    @make_transaction
    def change(call: Call) -> Result:
        operation(call)
        return OK

    return lambda arguments: change(arguments) or show_watch(arguments)


@_make_watch_change
def take_watch(call: Call) -> None:
    """Put a dispatcher on watch for the duration `--for`, and print the watch."""
    shifts.take_watch(*call.here, call.member, call.arguments.length, call.now)


@_make_watch_change
def hand_over(call: Call) -> None:
    """Ask another dispatcher to take the watch, and print the watch. Until the other dispatcher
    accepts, the watch stays unchanged.
    """
    member, note = call.member, call.arguments.note
    successor = directory.find_member(*call.here, call.arguments.to)
    shifts.hand_over(*call.here, member, successor, note, call.now)


@_make_watch_change
def end_watch(call: Call) -> None:
    """End a user's watch, and print the new watch. Raises Refused if the user is not on watch."""
    shifts.end_watch(*call.here, call.member, call.arguments.note, call.now)


@make_transaction
def set_hours(call: Call) -> Result:
    """Set the hours in which a dispatcher must be on watch, in UTC. `none` removes the hours."""
    watch_hours = Hours(*call.arguments.hours) if call.arguments.hours else None
    shifts.set_hours(*call.here, watch_hours, call.now)
    return {"hours": str(watch_hours or "none")}
