"""`fieldagent hub sos …`: a dispatcher's actions at the hub's machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from fieldagent.cli.hub.opened_store import Call, Result, make_transaction, show_list
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.api import sos_desk
from fieldagent.hub.api.reading import END
from fieldagent.hub.api.sos_api import Deed
from fieldagent.hub.field import check_in
from fieldagent.hub.records import sos
from fieldagent.hub.records.sos import Sos
from fieldagent.hub.store.contract import Db
from fieldagent.package.reading import read_timestamp


@make_transaction
def set_device_check_in(call: Call) -> Result:
    """Set a check-in for a kit, or remove it with --off, and print the time of its alarm."""
    if call.arguments.off:
        check_in.end_check_ins(call.db, call.device, now=call.now)
        return [{"id": call.device, "checkIn": None}]
    rule = check_in.Rule(call.arguments.every, call.arguments.by)
    due = check_in.begin_rule(call.db, call.device, rule, now=call.now)
    return [{"id": call.device, "checkIn": str(rule), "due": due}]


def make_list(kind: str) -> Callable[[argparse.Namespace], int]:
    """Return the function of a command that lists at most `--limit` incidents of `kind` (SOS or
    ALARM) in a workspace, newest first.
    """

    @make_transaction
    def carry_out(call: Call) -> Result:
        arguments = call.arguments
        query = (*call.here, arguments.state, END, max(1, arguments.limit))
        incidents = sos.list_sos(*query, kind=kind)
        described = [sos_desk.describe_sos(call.db, each) for each in incidents]
        return described if arguments.json else [_make_row(each) for each in described]

    return carry_out


def _make_row(incident: dict[str, Any]) -> dict[str, Any]:
    position, seen_by = incident["position"], incident["seen"]
    event = {} if incident["item"] is None else incident["item"]["event"]
    sent = event.get("timestamp")
    return {
        "id": incident["id"],
        "short": incident["short"],
        "kind": incident["kind"],
        "state": incident["state"],
        "raised": incident["raised"],
        "sent": sent and read_timestamp(sent).timestamp(),
        "device": incident["device"]["name"],
        "text": event.get("content"),
        "position": f"{position['latitude']} {position['longitude']}" if position else None,
        "seenBy": seen_by and seen_by["by"]["name"],
    }


def _print_incident(call: Call, incident: Sos) -> Result:
    """Print an incident (an SOS or an alarm of the hub), and the steps that were taken, with their
    times.
    """
    timeline = sos_desk.list_timeline(call.db, incident.id)
    document = {**sos_desk.describe_sos(call.db, incident), "timeline": timeline}
    if call.arguments.json:
        return document
    show_list(call.arguments, [_make_row(document)])
    return [{**each, "by": each["by"] and each["by"]["name"]} for each in timeline]


def _find_sos(call: Call, kind: str, *, locked: bool = False) -> Sos:
    number = call.arguments.id
    incident = sos.find_incident(*call.here, number, locked=locked)
    if incident is None or incident.is_alarm is (kind == sos.SOS):
        noun = "SOS" if kind == sos.SOS else "alarm"
        raise Refused(f"no {noun} {number} is in that workspace; see `fieldagent hub {kind} list`")
    return incident


def make_show_command(kind: str) -> Callable[[argparse.Namespace], int]:
    """Return the function of a command that prints one incident of `kind` with its timeline."""

    @make_transaction
    def carry_out(call: Call) -> Result:
        return _print_incident(call, _find_sos(call, kind))

    return carry_out


def make_dispatcher_command(kind: str, operation: Deed) -> Callable[[argparse.Namespace], int]:
    """Return the function of a command with which a dispatcher acts on an incident of `kind`."""

    @make_transaction
    def carry_out(call: Call) -> Result:
        incident = _find_sos(call, kind, locked=True)
        text = call.arguments.text or ""
        return _print_incident(
            call, operation(call.db, incident, _find_acting_user(call), text, call.now)
        )

    return carry_out


def _find_acting_user(call: Call) -> int:
    """Return the user who acts. The user's name is sent to the kit."""
    if call.arguments.by:
        return directory.find_member(*call.here, call.arguments.by)
    people = sos_desk.list_dispatchers(*call.here)
    if len(people) != 1:
        raise Refused("name the user who does this with --by USER; the kit shows the name")
    return people[0]


def make_hand_over_command(kind: str) -> Callable[[argparse.Namespace], int]:
    """Return the function of a command that asks another dispatcher to take over an incident of
    `kind`, and prints the incident. Until the other dispatcher accepts, the current dispatcher
    stays responsible.
    """

    def carry_out(arguments: argparse.Namespace) -> int:
        def ask_dispatcher(db: Db, incident: Sos, member: int, text: str, now: float) -> Sos:
            successor = directory.find_member(db, incident.workspace, arguments.to)
            return sos_desk.hand_over(db, incident, member, successor, text, now)

        return make_dispatcher_command(kind, ask_dispatcher)(arguments)

    return carry_out


list_incidents = make_list(sos.SOS)
show = make_show_command(sos.SOS)
acknowledge = make_dispatcher_command(sos.SOS, sos_desk.acknowledge)
take_over = make_dispatcher_command(sos.SOS, sos_desk.take_over)
close = make_dispatcher_command(sos.SOS, sos_desk.close_incident)
answer = make_dispatcher_command(sos.SOS, sos_desk.send_text_to_kit)
note = make_dispatcher_command(sos.SOS, sos_desk.add_note)
hand_over = make_hand_over_command(sos.SOS)
