"""`fieldagent hub contact quiet …`: hours in which the hub's own alarms wait until the morning."""

from __future__ import annotations

from fieldagent.cli.hub.opened_store import Call, Result, make_transaction
from fieldagent.extensions.desk.hub import contacts
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.records.quiet import NO_QUIET_HOURS, WrongHours, parse_hours


@make_transaction
def set_hours(call: Call) -> Result:
    """Set the quiet hours of the workspace, or of one contact. `never` means that a contact has no
    quiet hours, even if the workspace has some.
    """
    arguments = call.arguments
    if arguments.hours == NO_QUIET_HOURS:
        return _change(call, NO_QUIET_HOURS if arguments.contact else "")
    hours = f"{arguments.hours} {arguments.zone}"
    try:
        parse_hours(hours)
    except WrongHours as wrong:
        raise Refused(str(wrong)) from None
    return _change(call, hours)


@make_transaction
def inherit(call: Call) -> Result:
    """Remove a contact's own quiet hours, so that the workspace's quiet hours apply again."""
    return _change(call, "")


def _change(call: Call, hours: str) -> Result:
    if number := call.arguments.contact:
        contact = contacts.find_contact(*call.here, number)
        contacts.set_contact_hours(*call.here, contact.id, hours, call.now)
    else:
        contacts.set_workspace_hours(*call.here, hours, call.now)
    return _make_rows(call)


def _make_rows(call: Call) -> Result:
    of_all = contacts.read_workspace_hours(*call.here) or NO_QUIET_HOURS
    rows = [{"of": "workspace", "name": "", "quiet": of_all}]
    for each in contacts.list_all(*call.here):
        hours = each.quiet or f"{of_all} (the workspace's)"
        rows.append({"of": f"contact {each.id}", "name": each.name, "quiet": hours})
    return rows


@make_transaction
def list_quiet_hours(call: Call) -> Result:
    """List the quiet hours of the workspace and of each contact."""
    return _make_rows(call)
