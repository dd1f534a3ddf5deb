"""Whom a Package may be for, how far it has come with them, and that a person here has read what
came."""

from __future__ import annotations

from typing import Any

from fieldagent.agent.api.content import content
from fieldagent.agent.assembly import Parts
from fieldagent.agent.inbound.reading import mark
from fieldagent.agent.journal import directory
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import Known
from fieldagent.agent.outbound.reach import reached
from fieldagent.http.message import Request, Response, json_response
from fieldagent.http.problem import Problem
from fieldagent.http.query import refuse_others
from fieldagent.package.package import Package
from fieldagent.package.reading import Fault, Field, InvalidPackage, read_members, read_text
from fieldagent.package.strict_json import load_document
from fieldagent.system.sentence import sentence


async def people(parts: Parts, request: Request) -> Response:
    """Return who is in the directory, with what `to` is for each."""
    refuse_others(request, ())
    journal = parts.journal
    listed = [
        {
            "to": each.as_named,
            "name": each.name,
            "kind": each.kind,
            "radios": list(each.handles),
        }
        for each in directory.people(journal)
    ]
    whole = bool(directory.version(journal))
    return json_response(
        {"owner": directory.owner(journal) or None, "whole": whole, "people": listed}
    )


READ = {"by": Field(read_text, "by")}


async def read(parts: Parts, request: Request, id: str) -> Response:  # noqa: A002
    """Note that a person has read a payload; `by` in the body is their name. A payload that is not
    there is answered with 404."""
    refuse_others(request, ())
    document = load_document(request.body) if request.body.strip() else {}
    faults: list[Fault] = []
    if not isinstance(document, dict):
        raise InvalidPackage([Fault("must be a JSON object", "")])
    said = read_members(document, READ, "", faults)
    if faults:
        raise InvalidPackage(faults)
    by = " ".join(said.get("by", "").split())
    if not await mark(parts.journal, parts.inbox, id, by):
        raise Problem(404, detail=sentence("no inbound payload has the requestId {id}", id=id))
    return json_response({"requestId": id, "readBy": by})


def told(journal: Journal, package: Package) -> dict[str, Any]:
    """Return what a Package says, with the names of those whom it names."""
    names = {"toName": package.to, "fromName": package.author}
    return content(package) | {
        name: None if named is None else directory.in_words(journal, named)
        for name, named in names.items()
    }


def ladder(journal: Journal, known: Known) -> list[dict[str, Any]]:
    """Return how far a Package has come, as its answer tells it."""
    return [step._asdict() for step in reached(journal, known)]
