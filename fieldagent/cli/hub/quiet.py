"""`fieldagent hub quiet …`: when the hub's own alarms wait until the morning."""

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


def set(given: argparse.Namespace) -> int:  # noqa: A001
    """Set the quiet hours of the workspace, or of one contact, who by `never` has none whatever the
    workspace's are."""
    if given.hours == NEVER:
        return _change(given, NEVER if given.contact else "")
    return _change(given, f"{given.hours} {given.zone}", check=read_hours)


def inherit(given: argparse.Namespace) -> int:
    """Drop the quiet hours of a contact's own: the workspace's hold again."""
    return _change(given, "")


def _change(
    given: argparse.Namespace, hours: str, check: Callable[[str], object] = lambda hours: None
) -> int:
    def carry_out(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        try:
            check(hours)
        except WrongHours as wrong:
            raise Refused(str(wrong)) from None
        if given.contact:
            contact = contacts.named(db, workspace, given.contact)
            quiet.set_of_contact(db, workspace, contact.id, hours, now)
        else:
            quiet.set_of_workspace(db, workspace, hours, now)
        return _show(given, db, workspace)

    return once(given, carry_out)


def list(given: argparse.Namespace) -> int:  # noqa: A001
    """List the quiet hours of the workspace and of each contact."""
    return once(
        given, lambda db, now: _show(given, db, directory.workspace_of(db, given.workspace))
    )


def _show(given: argparse.Namespace, db: Db, workspace: int) -> int:
    of_all = quiet.of_workspace(db, workspace) or NEVER
    rows = [{"of": "workspace", "name": "", "quiet": of_all}]
    for each in contacts.all_of(db, workspace):
        hours = each.quiet or f"{of_all} (the workspace's)"
        rows.append({"of": f"contact {each.id}", "name": each.name, "quiet": hours})
    return show_list(given, rows)
