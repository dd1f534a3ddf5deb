"""Who is told of an SOS beside the console, as an administrator adds, tests and removes them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from fieldagent.http.message import Request, Response, json_response
from fieldagent.http.problem import Problem
from fieldagent.http.query import refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.administration.acts import Acts
from fieldagent.hub.administration.bodies import identity, line, read_body, unknown, whole
from fieldagent.hub.escalation import contacts, notice
from fieldagent.hub.escalation.contacts import AlarmContact
from fieldagent.hub.escalation.contract import Send
from fieldagent.hub.escalation.known import kind_of
from fieldagent.hub.store.contract import Db
from fieldagent.hub.webhook.webhook_directory import AFTER_MAX
from fieldagent.package.reading import Field
from fieldagent.webhook.delivery import HandoverOutcome

NEW = {
    "name": Field(line(), "name", required=True),
    "address": Field(line(320), "address", required=True),
    "after": Field(whole(0, AFTER_MAX), "after"),
}


class ContactsApi:
    """`senders`: how each kind is reached."""

    def __init__(self, acts: Acts, senders: Mapping[str, Send]) -> None:
        self._acts = acts
        self._senders = senders

    def routes(self) -> list[Route]:
        route = self._acts.route
        return [
            route("GET", "/api/contacts", self.list),
            route("POST", "/api/contacts", self.add),
            route("DELETE", "/api/contacts/{id}", self.remove),
            route("POST", "/api/contacts/{id}/test", self.test),
        ]

    async def list(self, request: Request, caller: Caller) -> Response:
        refuse_others(request, ())
        found = await self._acts.store.read(lambda db: contacts.listing(db, caller.workspace))
        return json_response({"contacts": found})

    async def add(self, request: Request, caller: Caller) -> Response:
        refuse_others(request, ())
        given = read_body(request, NEW)
        try:
            kind = kind_of(given["address"])
        except Refused as refused:
            raise _wrong_address(str(refused)) from None
        if fault := kind.at_the_machine or kind.fault_of(given["address"]):
            raise _wrong_address(fault)

        def act(db: Db, now: float) -> int:
            name, address, after = given["name"], given["address"], given.get("after") or 0
            by = str(caller.member)
            return contacts.add(db, caller.workspace, name, address, after=after, now=now, by=by)

        return json_response({"id": await self._acts.carry_out(caller, act)}, 201)

    async def remove(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        refuse_others(request, ())

        def act(db: Db, now: float) -> None:
            found = _contact(db, caller, id).id
            contacts.remove(db, caller.workspace, found, now=now, by=str(caller.member))

        await self._acts.carry_out(caller, act)
        return Response(204)

    async def test(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """What is sent says that it is a test."""
        refuse_others(request, ())
        contact = await self._acts.carry_out(caller, lambda db, now: _contact(db, caller, id))
        told = notice.test(contact.name, str(uuid.uuid4()))
        result = await self._senders[contact.kind](contact.address, told)
        taken = result.outcome is HandoverOutcome.HANDED
        reason = "" if taken else result.reason
        await self._acts.carry_out(
            caller, lambda db, now: contacts.note_end(db, contact.id, reason, now)
        )
        if not taken:
            detail = f"did not take the test message: {result.reason}"
            raise Problem(422, f"{contact.name} {detail}", errors=[(detail, "/address")])
        return Response(204)


def _wrong_address(detail: str) -> Problem:
    return Problem(422, f"address {detail}", errors=[(detail, "/address")])


def _contact(db: Db, caller: Caller, text: str) -> AlarmContact:
    """Raises Problem for one that is not of the caller's workspace."""
    try:
        return contacts.named(db, caller.workspace, identity(text))
    except Refused:
        raise unknown("contact", text) from None
