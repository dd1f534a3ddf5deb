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


def device_checkin(given: argparse.Namespace) -> int:
    """Have a kit missed where nothing comes from it in time, or with --off no more; print when it
    would be."""

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        device = directory.device_named(db, workspace, given.device)
        if given.off:
            check_in.end(db, device, now=now)
            return show_list(given, [{"id": device, "checkIn": None}])
        rule = check_in.Rule(given.every, given.by)
        due = check_in.begin(db, device, rule, now=now)
        return show_list(given, [{"id": device, "checkIn": str(rule), "due": due}])

    return once(given, change)


def list(given: argparse.Namespace) -> int:  # noqa: A001
    """List the incidents of a workspace, the newest first, `--limit` at most."""

    def look(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        found = sos.listing(db, workspace, given.state, END, max(1, given.limit))
        shown = [sos_desk.shown(db, each) for each in found]
        return show_list(given, shown if given.json else [_row(each) for each in shown])

    return once(given, look)


def _row(told: dict[str, Any]) -> dict[str, Any]:
    place, answered = told["position"], told["seen"]
    said = {} if told["item"] is None else told["item"]["event"]
    return {
        "id": told["id"],
        "kind": told["kind"],
        "state": told["state"],
        "raised": told["raised"],
        "of": said.get("timestamp"),
        "device": told["device"]["name"],
        "text": said.get("content"),
        "position": f"{place['latitude']} {place['longitude']}" if place else None,
        "seenBy": answered and answered["by"]["name"],
    }


def show_one(given: argparse.Namespace, db: Db, found: Sos) -> int:
    """Print an incident and, below it or in --json, its timeline; return OK."""
    told = {**sos_desk.shown(db, found), "timeline": sos_desk.timeline(db, found.id)}
    if given.json:
        return show(given, told)
    show_list(given, [_row(told)])
    rows = [{**each, "by": each["by"] and each["by"]["name"]} for each in told["timeline"]]
    return show_list(given, rows)


def _named(given: argparse.Namespace, db: Db, *, locked: bool = False) -> Sos:
    workspace = directory.workspace_of(db, given.workspace)
    found = sos.named(db, workspace, given.id, locked=locked)
    if found is None:
        raise Refused(f"there is no SOS {given.id} in that workspace; `fieldagent hub sos list`")
    return found


def show_named(given: argparse.Namespace) -> int:
    """Print one incident with its timeline. Refused where the workspace has none such."""
    return once(given, lambda db, now: show_one(given, db, _named(given, db)))


def _answer(given: argparse.Namespace, deed: Deed) -> int:
    def carry_out(db: Db, now: float) -> int:
        found = _named(given, db, locked=True)
        by = _by(given, db, found.workspace)
        return show_one(given, db, deed(db, found, by, given.text or "", now))

    return once(given, carry_out)


def _by(given: argparse.Namespace, db: Db, workspace: int) -> int:
    """A person's name goes to the kit."""
    if given.by:
        return directory.member_of(db, workspace, given.by)
    people = sos_desk.dispatchers(db, workspace)
    if len(people) != 1:
        raise Refused("say who acknowledges, closes or notes it: --by USER; its kit is told so")
    return people[0]


def acknowledge(given: argparse.Namespace) -> int:
    """Acknowledge an incident: its kit is told. Refused where another has it, or it is closed."""
    return _answer(given, sos_desk.acknowledge)


def take_over(given: argparse.Namespace) -> int:
    """Take an incident over from who has it; its kit is told. Refused once it is closed."""
    return _answer(given, sos_desk.take_over)


def hand_over(given: argparse.Namespace) -> int:
    """Ask another dispatcher to take an incident over, and print it; until they do, it stays as it
    is."""

    def deed(db: Db, found: Sos, member: int, text: str, now: float) -> Sos:
        heir = directory.member_of(db, found.workspace, given.to)
        return sos_desk.hand_over(db, found, member, heir, text, now)

    return _answer(given, deed)


def close(given: argparse.Namespace) -> int:
    """Close an incident, and tell its kit the reason. Refused once it is closed."""
    return _answer(given, sos_desk.close)


def answer(given: argparse.Namespace) -> int:
    """Send words to the kit of an incident, closed or not. Refused where it is out of use."""
    return _answer(given, sos_desk.write_to)


def note(given: argparse.Namespace) -> int:
    """Write words into the timeline of an incident, closed or not; its kit is told nothing."""
    return _answer(given, sos_desk.write_down)
