"""`fieldagent hub sos …`: what a dispatcher does at the machine of the hub."""

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
    """Have a kit missed where nothing comes from it in time, or with --off no more; print when it
    would be."""

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
    """List the incidents of a workspace, the newest first, `--limit` at most."""

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
    """Print an incident and, below it or in --json, its timeline; return OK."""
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
        raise Refused(
            f"there is no SOS {arguments.id} in that workspace; `fieldagent hub sos list`"
        )
    return incident


def show_named(arguments: argparse.Namespace) -> int:
    """Print one incident with its timeline. Refused where the workspace has none such."""
    return once(arguments, lambda db, now: show_one(arguments, db, _named(arguments, db)))


def _answer(arguments: argparse.Namespace, deed: Deed) -> int:
    def carry_out(db: Db, now: float) -> int:
        incident = _named(arguments, db, locked=True)
        by = _by(arguments, db, incident.workspace)
        return show_one(arguments, db, deed(db, incident, by, arguments.text or "", now))

    return once(arguments, carry_out)


def _by(arguments: argparse.Namespace, db: Db, workspace: int) -> int:
    """A person's name goes to the kit."""
    if arguments.by:
        return directory.member_of(db, workspace, arguments.by)
    people = sos_desk.dispatchers(db, workspace)
    if len(people) != 1:
        raise Refused("say who acknowledges, closes or notes it: --by USER; its kit is told so")
    return people[0]


def acknowledge(arguments: argparse.Namespace) -> int:
    """Acknowledge an incident: its kit is told. Refused where another has it, or it is closed."""
    return _answer(arguments, sos_desk.acknowledge)


def take_over(arguments: argparse.Namespace) -> int:
    """Take an incident over from who has it; its kit is told. Refused once it is closed."""
    return _answer(arguments, sos_desk.take_over)


def hand_over(arguments: argparse.Namespace) -> int:
    """Ask another dispatcher to take an incident over, and print it; until they do, it stays as it
    is."""

    def deed(db: Db, incident: Sos, member: int, text: str, now: float) -> Sos:
        heir = directory.member_of(db, incident.workspace, arguments.to)
        return sos_desk.hand_over(db, incident, member, heir, text, now)

    return _answer(arguments, deed)


def close(arguments: argparse.Namespace) -> int:
    """Close an incident, and tell its kit the reason. Refused once it is closed."""
    return _answer(arguments, sos_desk.close)


def answer(arguments: argparse.Namespace) -> int:
    """Send words to the kit of an incident, closed or not. Refused where it is out of use."""
    return _answer(arguments, sos_desk.write_to)


def note(arguments: argparse.Namespace) -> int:
    """Write words into the timeline of an incident, closed or not; its kit is told nothing."""
    return _answer(arguments, sos_desk.write_down)
