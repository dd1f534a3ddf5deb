"""`fieldagent hub sos …`: a dispatcher's actions at the hub's machine."""

from __future__ import annotations

import argparse
from typing import Any

from fieldagent.cli.hub.opened_store import once, show, show_list
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.api import sos_desk
from fieldagent.hub.api.reading import END
from fieldagent.hub.api.sos_api import Deed
from fieldagent.hub.field import check_in
from fieldagent.hub.records import sos
from fieldagent.hub.records.sos import Sos
from fieldagent.hub.store.contract import Db


def device_checkin(arguments: argparse.Namespace) -> int:
    """Set a check-in for a kit, or remove it with --off, and print the time of its alarm."""

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        device = directory.device_named(db, workspace, arguments.device)
        if arguments.off:
            check_in.end(db, device, now=now)
            return show_list(arguments, [{"id": device, "checkIn": None}])
        rule = check_in.Rule(arguments.every, arguments.by)
        due = check_in.begin(db, device, rule, now=now)
        return show_list(arguments, [{"id": device, "checkIn": str(rule), "due": due}])

    return once(arguments, change)


def list(arguments: argparse.Namespace) -> int:  # noqa: A001
    """List the incidents of a workspace, the newest first, at most `--limit`."""

    def look(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        incidents = sos.listing(db, workspace, arguments.state, END, max(1, arguments.limit))
        shown = [sos_desk.shown(db, each) for each in incidents]
        return show_list(arguments, shown if arguments.json else [_row(each) for each in shown])

    return once(arguments, look)


def _row(incident: dict[str, Any]) -> dict[str, Any]:
    place, answered = incident["position"], incident["seen"]
    said = {} if incident["item"] is None else incident["item"]["event"]
    return {
        "id": incident["id"],
        "short": incident["short"],
        "kind": incident["kind"],
        "state": incident["state"],
        "raised": incident["raised"],
        "of": said.get("timestamp"),
        "device": incident["device"]["name"],
        "text": said.get("content"),
        "position": f"{place['latitude']} {place['longitude']}" if place else None,
        "seenBy": answered and answered["by"]["name"],
    }


def show_one(arguments: argparse.Namespace, db: Db, incident: Sos) -> int:
    """Print an incident and its timeline; return OK."""
    document = {**sos_desk.shown(db, incident), "timeline": sos_desk.timeline(db, incident.id)}
    if arguments.json:
        return show(arguments, document)
    show_list(arguments, [_row(document)])
    rows = [{**each, "by": each["by"] and each["by"]["name"]} for each in document["timeline"]]
    return show_list(arguments, rows)


def _named(arguments: argparse.Namespace, db: Db, *, locked: bool = False) -> Sos:
    workspace = directory.workspace_of(db, arguments.workspace)
    incident = sos.named(db, workspace, arguments.id, locked=locked)
    if incident is None:
        raise Refused(f"no SOS {arguments.id} is in that workspace; see `fieldagent hub sos list`")
    return incident


def show_named(arguments: argparse.Namespace) -> int:
    """Print one incident with its timeline. Refused if the workspace does not have it."""
    return once(arguments, lambda db, now: show_one(arguments, db, _named(arguments, db)))


def _answer(arguments: argparse.Namespace, deed: Deed) -> int:
    def carry_out(db: Db, now: float) -> int:
        incident = _named(arguments, db, locked=True)
        by = _by(arguments, db, incident.workspace)
        return show_one(arguments, db, deed(db, incident, by, arguments.text or "", now))

    return once(arguments, carry_out)


def _by(arguments: argparse.Namespace, db: Db, workspace: int) -> int:
    """Return the user who acts, whose name goes to the kit."""
    if arguments.by:
        return directory.member_of(db, workspace, arguments.by)
    people = sos_desk.dispatchers(db, workspace)
    if len(people) != 1:
        raise Refused(
            "name the user who acknowledges, closes or notes it with --by USER; its kit shows"
            " the name"
        )
    return people[0]


def acknowledge(arguments: argparse.Namespace) -> int:
    """Acknowledge an incident and notify its kit. Refused if another dispatcher has it, or if it is
    closed.
    """
    return _answer(arguments, sos_desk.acknowledge)


def take_over(arguments: argparse.Namespace) -> int:
    """Take an incident over from another dispatcher and notify its kit. Refused if it is closed."""
    return _answer(arguments, sos_desk.take_over)


def hand_over(arguments: argparse.Namespace) -> int:
    """Ask another dispatcher to take an incident over, and print it. It stays with the current one
    until then.
    """

    def deed(db: Db, incident: Sos, member: int, text: str, now: float) -> Sos:
        heir = directory.member_of(db, incident.workspace, arguments.to)
        return sos_desk.hand_over(db, incident, member, heir, text, now)

    return _answer(arguments, deed)


def close(arguments: argparse.Namespace) -> int:
    """Close an incident, and send the reason to its kit. Refused if it is closed."""
    return _answer(arguments, sos_desk.close)


def answer(arguments: argparse.Namespace) -> int:
    """Send a text to the kit of an incident, closed or not. Refused if the kit is out of use."""
    return _answer(arguments, sos_desk.write_to)


def note(arguments: argparse.Namespace) -> int:
    """Write a note into the timeline of an incident, closed or not, without notifying its kit."""
    return _answer(arguments, sos_desk.write_down)
