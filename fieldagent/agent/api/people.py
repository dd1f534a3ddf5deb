"""The directory, the progress of a Package, and read receipts by people at this kit."""

from __future__ import annotations

from typing import Any

from fieldagent.agent.api.content import describe_content
from fieldagent.agent.assembly import Parts
from fieldagent.agent.inbound.reading import store_reading
from fieldagent.agent.journal import directory
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import PackageFacts
from fieldagent.agent.outbound.reach import list_reached
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.query import refuse_others
from fieldagent.package.package import Package
from fieldagent.package.reading import Fault, Field, InvalidPackage, read_members, read_text
from fieldagent.package.strict_json import load_document
from fieldagent.system.sentence import sentence


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


def describe_with_names(journal: Journal, package: Package) -> dict[str, Any]:
    """Return a Package's content, with the names of its addressee and author."""
    names = {"toName": package.to, "fromName": package.author}
    return describe_content(package) | {
        name: None if person_name is None else directory.describe_addressee(journal, person_name)
        for name, person_name in names.items()
    }


def list_stages(journal: Journal, stored_package: PackageFacts) -> list[dict[str, Any]]:
    """Return the stages that a Package has reached, in the API's form."""
    return [step._asdict() for step in list_reached(journal, stored_package)]
