"""`fieldagent hub contact quiet …`: hours in which the hub's own alarms wait until the morning."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from fieldagent.cli.hub.opened_store import once, show_list
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.escalation import contacts
from fieldagent.hub.records import quiet
from fieldagent.hub.records.quiet import NEVER, WrongHours, read_hours
from fieldagent.hub.store.contract import Db


def set(arguments: argparse.Namespace) -> int:  # noqa: A001
    """Set the quiet hours of the workspace, or of one contact. With `never`, a contact has none,
    whatever the workspace has.
    """
    if arguments.hours == NEVER:
        return _change(arguments, NEVER if arguments.contact else "")
    return _change(arguments, f"{arguments.hours} {arguments.zone}", check=read_hours)


def inherit(arguments: argparse.Namespace) -> int:
    """Remove a contact's own quiet hours, so that the workspace's apply again."""
    return _change(arguments, "")


def _change(
    arguments: argparse.Namespace, hours: str, check: Callable[[str], object] = lambda hours: None
) -> int:
    def carry_out(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        try:
            check(hours)
        except WrongHours as wrong:
            raise Refused(str(wrong)) from None
        if arguments.contact:
            contact = contacts.named(db, workspace, arguments.contact)
            quiet.set_of_contact(db, workspace, contact.id, hours, now)
        else:
            quiet.set_of_workspace(db, workspace, hours, now)
        return _show(arguments, db, workspace)

    return once(arguments, carry_out)


def list(arguments: argparse.Namespace) -> int:  # noqa: A001
    """List the quiet hours of the workspace and of each contact."""
    return once(
        arguments,
        lambda db, now: _show(arguments, db, directory.workspace_of(db, arguments.workspace)),
    )


def _show(arguments: argparse.Namespace, db: Db, workspace: int) -> int:
    of_all = quiet.of_workspace(db, workspace) or NEVER
    rows = [{"of": "workspace", "name": "", "quiet": of_all}]
    for each in contacts.all_of(db, workspace):
        hours = each.quiet or f"{of_all} (the workspace's)"
        rows.append({"of": f"contact {each.id}", "name": each.name, "quiet": hours})
    return show_list(arguments, rows)
