"""The directory, read receipts by people at this kit, and received commands with their answers."""

from __future__ import annotations

from typing import Any

from fieldagent.agent.assembly import Parts
from fieldagent.agent.inbound.reading import store_reading
from fieldagent.agent.journal import commands, directory
from fieldagent.agent.journal.commands import StoredCommand
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.query import refuse_others
from fieldagent.package.reading import Fault, Field, InvalidPackage, read_members, read_text
from fieldagent.package.strict_json import load_document
from fieldagent.system.wording import sentence
from fieldagent.wire.answer_text import format_answer
from fieldagent.wire.command import format_command


async def answer_people(parts: Parts, request: Request) -> Response:
    """Return the directory, including the `to` value for each addressee."""
    refuse_others(request, ())
    journal = parts.journal
    people = [
        {
            "to": each.as_named,
            "name": each.name,
            "kind": each.kind,
            "radios": list(each.handles),
        }
        for each in directory.list_people(journal)
    ]
    is_complete = bool(directory.read_version(journal))
    return make_json_response(
        {"owner": directory.read_owner(journal) or None, "complete": is_complete, "people": people}
    )


READ_FIELDS = {"by": Field(read_text, "by")}


async def record_read(parts: Parts, request: Request, id: str) -> Response:  # noqa: A002
    """Record that a person has read a payload. The member `by` of the body is the person's name.
    Raises Problem 404 if the payload is unknown.
    """
    refuse_others(request, ())
    document = load_document(request.body) if request.body.strip() else {}
    faults: list[Fault] = []
    if not isinstance(document, dict):
        raise InvalidPackage([Fault("must be a JSON object", "")])
    members = read_members(document, READ_FIELDS, "", faults)
    if faults:
        raise InvalidPackage(faults)
    reader = " ".join(members.get("by", "").split())
    if not await store_reading(parts.journal, parts.inbox, id, reader):
        raise Problem(404, detail=sentence("no inbound payload has the requestId {id}", id=id))
    return make_json_response({"requestId": id, "readBy": reader})


COMMANDS_LISTED_MAX = 50


def list_commands(parts: Parts) -> dict[str, Any]:
    """Return the names of the allowed commands, and the last received commands, newest first."""
    newest = commands.list_newest(parts.journal, COMMANDS_LISTED_MAX)
    date = parts.journal.clock.date
    return {
        "allowed": list(parts.inbox.commands.allowed),
        "commands": [
            {
                "number": each.number,
                "command": format_command(each.command),
                "channel": each.channel,
                "came": date(each.arrived_at),
                "state": each.state,
                **_encode_command(each),
                "answered": None if each.answered_at is None else date(each.answered_at),
            }
            for each in newest
        ],
    }


def _encode_command(command_record: StoredCommand) -> dict[str, str | None]:
    if command_record.answer is None:
        return {"outcome": None, "answer": None}
    return {
        "outcome": command_record.answer.outcome.name.lower(),
        "answer": format_answer(command_record.command.verb, command_record.answer),
    }
