"""API for the contacts that are notified of an SOS, and for their escalation chain."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any

from fieldagent.extensions.desk.hub import chain, contacts, notice
from fieldagent.extensions.desk.hub.contacts import (
    TRIES_MAX,
    WAIT_LEAST,
    WAIT_MOST,
    AlarmContact,
    find_kind,
)
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.query import refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access.bodies import (
    make_integer_reader,
    make_line_reader,
    make_not_found,
    make_pattern_reader,
    read_body,
    read_id,
)
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.administration.acts import AdministrationContext
from fieldagent.hub.contact.registry import ContactSenders
from fieldagent.hub.records import sending
from fieldagent.hub.records.alarm import INCIDENT_KINDS
from fieldagent.hub.records.quiet import HOURS, NO_QUIET_HOURS, WrongHours, parse_hours
from fieldagent.hub.store.contract import Db
from fieldagent.package.reading import Field, WrongValue
from fieldagent.page.language import LANGUAGES
from fieldagent.system.span import read_span
from fieldagent.system.wording import sentence
from fieldagent.webhook.delivery import HandoverOutcome


def _read_pause(value: Any) -> int:
    """Return the seconds of a duration such as `5m`. Raises WrongValue for any other value."""
    seconds = read_span(value) if isinstance(value, str) and value[-1:].isalpha() else None
    if seconds is None or not WAIT_LEAST <= seconds <= WAIT_MOST:
        raise WrongValue("must be a time such as 30s, 5m or 2h, from 10s to 168h")
    return seconds


def _read_wait(value: Any) -> int:
    return 0 if value == "0s" else _read_pause(value)


_QUIET_FIELDS = {
    "quiet": Field(
        make_pattern_reader(
            re.compile(f"({NO_QUIET_HOURS}|{HOURS.pattern})?"),
            sentence(
                "22:00-06:00 and a time zone such as Europe/Zurich, {never}, or empty",
                never=NO_QUIET_HOURS,
            ),
        ),
        "quiet",
        required=True,
    )
}


def _refuse_unsound(hours: str) -> None:
    """Raise Refused if the quiet hours are invalid."""
    if hours not in ("", NO_QUIET_HOURS):
        try:
            parse_hours(hours)
        except WrongHours as wrong:
            raise Refused(str(wrong)) from None


def _make_choice_field(name: str, values: Sequence[str]) -> Field:
    return Field(
        make_pattern_reader(
            re.compile("|".join(values)), sentence("one of {values}", values=", ".join(values))
        ),
        name,
    )


NEW_CONTACT_FIELDS = {
    "name": Field(make_line_reader(), "name", required=True),
    "address": Field(make_line_reader(320), "address", required=True),
    "after": Field(_read_wait, "after"),
    "tries": Field(make_integer_reader(1, TRIES_MAX), "tries"),
    "every": Field(_read_pause, "every"),
    "about": _make_choice_field("about", INCIDENT_KINDS),
    "language": _make_choice_field("language", LANGUAGES),
}


class ContactsApi:
    """Routes for contacts. `reach` contains the kinds of contacts and sends to contacts."""

    def __init__(self, acts: AdministrationContext, reach: ContactSenders) -> None:
        self._acts = acts
        self._reach = reach

    def make_routes(self) -> list[Route]:
        """Return the routes for contacts, the chain and the quiet hours. Only administrators can
        use them.
        """
        route = self._acts.route
        return [
            route("GET", "/api/contacts", self.list),
            route("POST", "/api/contacts", self.add),
            route("PATCH", "/api/contacts/{id}", self.change),
            route("DELETE", "/api/contacts/{id}", self.remove),
            route("POST", "/api/contacts/{id}/test", self.test),
            route("GET", "/api/chain", self.answer_chain),
            route("POST", "/api/chain/test", self.test_chain),
            route("GET", "/api/quiet", self.answer_quiet_hours),
            route("PATCH", "/api/quiet", self.change_quiet),
        ]

    async def list(self, request: Request, caller: Caller) -> Response:
        """Return the contacts of the workspace in the order of notification. If the hub knows that
        it cannot notify a contact, the contact has the reason.
        """
        refuse_others(request, ())
        kinds, own = self._reach.kinds, self._reach.own
        rows = await self._acts.store.read(
            lambda db: contacts.list_alarm_contacts(db, caller.workspace, kinds, own)
        )
        return make_json_response({"contacts": rows})

    async def add(self, request: Request, caller: Caller) -> Response:
        """Add a contact, and respond with status 201 and the contact's id. Raises Problem 422 if
        the address has no known kind, or a kind that can only be added on the hub's machine. Raises
        Problem 409 if there are too many contacts.
        """
        refuse_others(request, ())
        body = read_body(request, NEW_CONTACT_FIELDS)
        try:
            kind = find_kind(body["address"], self._reach.kinds, self._reach.own)
        except Refused as refused:
            raise _make_wrong_address(str(refused)) from None
        if fault := kind.at_the_machine or kind.fault_of(body["address"]):
            raise _make_wrong_address(fault)

        values = {name: value for name, value in body.items() if value is not None}
        new = contacts.NewContact(kind=kind.name, **values)

        def store_contact(db: Db, now: float) -> int:
            return contacts.add_contact(
                db, caller.workspace, new, now=now, actor=str(caller.member)
            )

        return make_json_response({"id": await self._acts.carry_out(caller, store_contact)}, 201)

    async def change(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Set the quiet hours of a contact: its own hours, no hours, or the hours of its
        workspace.
        """
        refuse_others(request, ())
        hours = read_body(request, _QUIET_FIELDS)["quiet"]

        def store_hours(db: Db, now: float) -> None:
            _refuse_unsound(hours)
            contact_id = _find_contact(db, caller, id).id
            contacts.set_contact_hours(
                db, caller.workspace, contact_id, hours, now, actor=str(caller.member)
            )

        await self._acts.carry_out(caller, store_hours)
        return Response(204)

    async def answer_quiet_hours(self, request: Request, caller: Caller) -> Response:
        """Return the workspace's quiet hours."""
        refuse_others(request, ())
        hours = await self._acts.store.read(
            lambda db: contacts.read_workspace_hours(db, caller.workspace)
        )
        return make_json_response({"quiet": hours or NO_QUIET_HOURS})

    async def change_quiet(self, request: Request, caller: Caller) -> Response:
        """Change the quiet hours that apply to all contacts without their own quiet hours."""
        refuse_others(request, ())
        value = read_body(request, _QUIET_FIELDS)["quiet"]
        hours = "" if value == NO_QUIET_HOURS else value

        def store_quiet_hours(db: Db, now: float) -> str:
            _refuse_unsound(hours)
            contacts.set_workspace_hours(db, caller.workspace, hours, now, actor=str(caller.member))
            return hours or NO_QUIET_HOURS

        return make_json_response({"quiet": await self._acts.carry_out(caller, store_quiet_hours)})

    async def remove(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Remove a contact, and respond with status 204. Raises Problem 404 if the contact is in
        another workspace.
        """
        refuse_others(request, ())

        def delete_contact(db: Db, now: float) -> None:
            contact_id = _find_contact(db, caller, id).id
            contacts.remove_contact(
                db, caller.workspace, contact_id, now=now, actor=str(caller.member)
            )

        await self._acts.carry_out(caller, delete_contact)
        return Response(204)

    async def test(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Send a contact a message that is marked as a test. Raises Problem 429 if too many
        messages were sent, and Problem 422 if the service does not accept the message.
        """
        refuse_others(request, ())

        def prepare_test(db: Db, now: float) -> tuple[AlarmContact, str]:
            contact = _find_contact(db, caller, id)
            limit = sending.record_message_or_refuse(
                db, caller.workspace, contact.address, sending.TEST, now
            )
            return contact, limit

        contact, limit = await self._acts.carry_out(caller, prepare_test)
        if limit:
            raise Problem(429, limit, headers=(("Retry-After", "3600"),))
        message = notice.make_test_notice(contact.name, str(uuid.uuid4()), contact.language)
        result = await self._reach.send_notice(contact.kind, contact.address, message)
        is_taken = result.outcome is HandoverOutcome.HANDED
        reason = "" if is_taken else result.reason
        await self._note_end(contact, reason)
        if not is_taken:
            detail = sentence("did not accept the test message: {reason}", reason=result.reason)
            raise Problem(
                422,
                sentence("{name} {detail}", name=contact.name, detail=detail),
                errors=[(detail, "/address")],
            )
        return Response(204)

    async def answer_chain(self, request: Request, caller: Caller) -> Response:
        """Return the steps that follow an unanswered SOS. Each has its contacts, and True if the
        step works.
        """
        refuse_others(request, ())
        kinds, own = self._reach.kinds, self._reach.own
        steps = await self._acts.store.read(
            lambda db: chain.list_steps(db, caller.workspace, kinds, own)
        )
        return make_json_response({"steps": steps})

    async def test_chain(self, request: Request, caller: Caller) -> Response:
        """Send each contact, without waiting, a message that is marked as a test. The response
        contains all results, even if all tests failed.
        """
        refuse_others(request, ())

        def prepare_tests(db: Db, now: float) -> list[tuple[AlarmContact, str]]:
            everybody = contacts.list_all(db, caller.workspace)
            count = partial(
                sending.record_message_or_refuse, db, caller.workspace, kind=sending.TEST, now=now
            )
            return [(each, count(address=each.address)) for each in everybody]

        recipients = await self._acts.carry_out(caller, prepare_tests)
        results = await chain.test_contacts(recipients, self._reach, self._note_end)
        return make_json_response({"results": results})

    async def _note_end(self, contact: AlarmContact, reason: str) -> None:
        """Record the result of a test. The rate limit of the caller does not count this, because it
        counted the request for the test.
        """
        now = self._acts.clock()
        await self._acts.store.commit(
            lambda db: contacts.record_attempt(db, contact.id, reason, now)
        )


def _make_wrong_address(detail: str) -> Problem:
    return Problem(422, sentence("address {detail}", detail=detail), errors=[(detail, "/address")])


def _find_contact(db: Db, caller: Caller, text: str) -> AlarmContact:
    """Return the contact with this id. Raises Problem if it is not in the caller's workspace."""
    try:
        return contacts.find_contact(db, caller.workspace, read_id(text))
    except Refused:
        raise make_not_found("contact", text) from None
