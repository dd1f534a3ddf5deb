"""API of the SOS desk. Callers with read access see all incidents of the workspace, and dispatchers
answer them.

The paths of an SOS begin with `/api/sos`, the paths of an alarm of the hub with `/api/alarms`. A
path shows only incidents of its kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fieldagent.http.guard import get_required_body
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.query import make_page, read_integer, read_one_of, refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access.authentication import Authentication
from fieldagent.hub.access.bodies import make_pattern_reader, read_body, read_id
from fieldagent.hub.access.caller import Caller, Purpose
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.access.repeats import find_answer, read_repeatable, store_result
from fieldagent.hub.api import sos_desk, sos_table
from fieldagent.hub.api.reading import END
from fieldagent.hub.records import sos
from fieldagent.hub.records.sos import Sos, SosState
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.unavailable import make_not_now
from fieldagent.package import canned
from fieldagent.package.reading import Field, read_text
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.store.group import StoreFailed, StoreFull, StoreUnavailable
from fieldagent.system.wording import sentence

LISTED, LISTED_MAX = 50, 200
EXPORTED_MAX, EXPORTED_AT_ONCE = 5_000, 50
PATHS = {sos.SOS: "sos", sos.ALARM: "alarms"}
"""Last part of the path for each kind of incident. This is also the name of the list in a
response."""
TEXT_MAX = 200
"""Largest number of characters of a search text."""

HAND_OVER_FIELDS = {
    "to": Field(
        make_pattern_reader(re.compile("[0-9]{1,18}"), "the number of a user"), "to", required=True
    ),
    "note": Field(read_text, "note"),
}

Deed = Callable[[Db, Sos, int, str, float], Sos]
"""Function that carries out an action on an SOS. Its arguments are the member, a text and the Unix
time. Raises Refused if the state of the SOS does not allow the action."""


class SosApi:
    """Routes of the desk for one `kind`: SOS or ALARM. `clock` returns Unix time."""

    def __init__(
        self,
        store: Store,
        authentication: Authentication,
        *,
        clock: Callable[[], float],
        kind: str = sos.SOS,
    ) -> None:
        self._kind = kind
        self._name = PATHS[kind]
        self._store = store
        self._clock = clock
        self._authentication = authentication

    def make_routes(self) -> list[Route]:
        """Return the routes. Callers need READ to see incidents, and ACKNOWLEDGE to answer them."""
        path = f"/api/{self._name}"
        may_read = self._authentication.judge(Purpose.READ)
        may_answer = self._authentication.judge(Purpose.ACKNOWLEDGE)
        answer = partial(Route, "POST", judge=may_answer)
        return [
            Route("GET", path, self.list, judge=may_read),
            Route("GET", f"{path}/{{id}}", self.look, judge=may_read),
            answer(f"{path}/{{id}}/acknowledge", self.acknowledge),
            answer(f"{path}/{{id}}/take-over", self.take_over),
            answer(f"{path}/{{id}}/hand-over", self.hand_over),
            answer(f"{path}/{{id}}/close", self.close),
            answer(f"{path}/{{id}}/note", self.note),
            answer(f"{path}/{{id}}/answer", self.answer),
            Route("GET", f"{path}/export", self.export, judge=may_read),
            *(
                [Route("GET", f"{path}/words", self.answer_canned_texts, judge=may_read)]
                if self._is_sos
                else []
            ),
        ]

    @property
    def _is_sos(self) -> bool:
        return self._kind == sos.SOS

    def _find(self, db: Db, workspace: int, number_: int, *, locked: bool = False) -> Sos | None:
        """Return the incident of this kind with the id `number_`, or None."""
        incident = sos.find_incident(db, workspace, number_, locked=locked)
        return None if incident is None or incident.is_alarm is self._is_sos else incident

    async def list(self, request: Request, caller: Caller) -> Response:
        """Return a page of the incidents of this kind in the workspace. All readers of the
        workspace may see them.
        """
        refuse_others(request, ("state", "text", "before", "limit"))
        state = read_one_of(request, "state", tuple(SosState))
        text = _read_search(request)
        before = read_integer(request, "before", END, range(1, END + 1))
        limit = read_integer(request, "limit", LISTED, range(1, LISTED_MAX + 1))

        def read_page(db: Db) -> tuple[list[dict[str, Any]], int | None]:
            page_query = caller.workspace, state, before, limit + 1, text
            incidents = sos.list_sos(db, *page_query, kind=self._kind)
            last = incidents[limit - 1].id if len(incidents) > limit else None
            return [sos_desk.describe_sos(db, each) for each in incidents[:limit]], last

        incident_page, last = await self._store.read(read_page)
        return make_page(request, {self._name: incident_page}, "before", last)

    async def export(self, request: Request, caller: Caller) -> Response:
        """Return the newest `EXPORTED_MAX` incidents, as JSON with threads and timelines or as a
        table for spreadsheets.
        """
        refuse_others(request, ("state", "text", "format"))
        state = read_one_of(request, "state", tuple(SosState))
        form = read_one_of(request, "format", ("csv", "json")) or "json"
        text, before = _read_search(request), END
        history: list[dict[str, Any]] = []
        while len(history) < EXPORTED_MAX:

            def read_incidents(db: Db, before: int = before) -> list[dict[str, Any]]:
                page_query = caller.workspace, state, before, EXPORTED_AT_ONCE, text
                incidents = sos.list_sos(db, *page_query, kind=self._kind)
                return [_add_timeline(db, each) for each in incidents]

            incidents_read = await self._store.read(read_incidents)
            if not incidents_read:
                break
            history += incidents_read
            before = incidents_read[-1]["id"]
        name = ("Content-Disposition", f'attachment; filename="{self._name}.{form}"')
        if form == "csv":
            return Response(
                200, sos_table.encode_table(history), "text/csv; charset=utf-8", (name,)
            )
        return make_json_response({self._name: history}, headers=(name,))

    async def answer_canned_texts(self, request: Request, caller: Caller) -> Response:
        """Return the canned texts for dispatchers. On the air, each text takes one or two bytes."""
        refuse_others(request, ())
        return make_json_response({"fromDesk": canned.DESK_TEXTS})

    async def look(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Return an incident with its timeline. Raises Problem 404 if the incident is of another
        workspace or of the other kind.
        """
        refuse_others(request, ())
        number_ = read_id(id)

        def read(db: Db) -> dict[str, Any] | None:
            incident = self._find(db, caller.workspace, number_)
            return None if incident is None else _add_timeline(db, incident)

        answer = await self._store.read(read)
        if answer is None:
            raise self._make_unknown(id)
        return make_json_response(answer, headers=_make_mark_header(answer))

    async def acknowledge(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Record that the caller has seen an SOS, with an optional note."""
        return await self._send_text(
            request, id, caller, sos_desk.acknowledge, "note", required=False
        )

    async def take_over(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Assign an SOS to the caller instead of its current dispatcher, with an optional note."""
        return await self._send_text(
            request, id, caller, sos_desk.take_over, "note", required=False
        )

    async def hand_over(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Ask the dispatcher in the member `to` to take over an SOS, and return the SOS. Raises
        Problem 404, 422, or 409 if the dispatcher cannot take over the SOS.
        """
        body = read_body(request, HAND_OVER_FIELDS)
        heir, text = body["to"], read_note(body)

        def ask_dispatcher(db: Db, incident: Sos, member: int, text: str, now: float) -> Sos:
            return sos_desk.hand_over(db, incident, member, int(heir), text, now)

        return await self._carry_out(request, id, caller, ask_dispatcher, text)

    async def close(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        return await self._send_text(request, id, caller, sos_desk.close_incident, "reason")

    async def note(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        return await self._send_text(request, id, caller, sos_desk.add_note, "text")

    async def answer(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Send a text to the kit of an SOS."""
        return await self._send_text(request, id, caller, sos_desk.send_text_to_kit, "text")

    async def _send_text(
        self,
        request: Request,
        id_: str,
        caller: Caller,
        operation: Deed,
        member: str,
        *,
        required: bool = True,
    ) -> Response:
        text = _read_text(request, member, required=required)
        return await self._carry_out(request, id_, caller, operation, text)

    async def _carry_out(
        self, request: Request, id_: str, caller: Caller, operation: Deed, text: str
    ) -> Response:
        number_, repeatable = read_id(id_), read_repeatable(request, caller)

        def carry_out(db: Db) -> dict[str, Any] | Problem | None:
            earlier_answer = find_answer(db, repeatable)
            incident = self._find(db, caller.workspace, number_, locked=True)
            if incident is None:
                return None
            if earlier_answer is None:
                now = self._clock()
                try:
                    incident = operation(db, incident, caller.member, text, now)
                except Refused as refused:
                    return Problem(
                        409, str(refused), members={self._kind: _add_timeline(db, incident)}
                    )
                store_result(db, repeatable, id_, now)
            return _add_timeline(db, incident)

        try:
            answer = await self._store.commit(carry_out)
        except StoreFull as full:
            raise Problem(
                507, sentence("nothing was stored: {full}; try again later", full=full)
            ) from None
        except (StoreFailed, StoreUnavailable):
            raise make_not_now("the change may not have been stored: repeat the call") from None
        if answer is None:
            raise self._make_unknown(id_)
        if isinstance(answer, Problem):
            raise answer
        return make_json_response(answer, headers=_make_mark_header(answer))

    def _make_unknown(self, id_: str) -> Problem:
        if self._is_sos:
            unknown_text = sentence(
                "no SOS of this workspace has the id {id}, which is not the number that people see",
                id=id_[:40],
            )
        else:
            unknown_text = sentence("no alarm of this workspace has the number {id}", id=id_[:40])
        return Problem(404, unknown_text)


def _make_mark_header(incident: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the header that marks the response as an SOS or an alarm. Requests to webhooks have
    the same header.
    """
    kind = incident["kind"]
    return (("fieldagent-sos", "1"),) if kind == sos.SOS else (("fieldagent-alarm", kind),)


def _add_timeline(db: Db, incident: Sos) -> dict[str, Any]:
    return {
        **sos_desk.describe_sos(db, incident),
        "timeline": sos_desk.list_timeline(db, incident.id),
    }


def read_note(body: Mapping[str, Any]) -> str:
    """Return the note in a body, without characters that a database rejects. Raises Problem if the
    note is too long.
    """
    text = str(body.get("note", "")).replace("\0", " ")
    if len(text) > sos_desk.TEXT_MAX:
        raise Problem(
            422, sentence("note can have {most} characters at most", most=sos_desk.TEXT_MAX)
        )
    return text


def _read_search(request: Request) -> str:
    text = dict(request.query).get("text", "")
    if len(text) > TEXT_MAX or "\0" in text:
        raise Problem(400, sentence("?text= has at most {most} characters", most=TEXT_MAX))
    return text


def _read_text(request: Request, member: str, *, required: bool) -> str:
    """Return the text in `member`, which must be the only member of the body."""
    try:
        body = load_document(get_required_body(request) if required else request.body or b"{}")
    except NotJson as error:
        raise Problem(400, str(error)) from None
    if not isinstance(body, dict) or not body.keys() <= {member}:
        raise Problem(
            422, sentence("the body must be an object with only {member}", member=repr(member))
        )
    text = body.get(member, "")
    if not isinstance(text, str) or len(text) > sos_desk.TEXT_MAX or (required and not text):
        expected = sentence("a text of at most {most} characters", most=sos_desk.TEXT_MAX)
        raise Problem(
            422,
            sentence("{member} is {what}", member=repr(member), what=expected),
            errors=[(expected, f"/{member}")],
        )
    return text.encode("utf-8", "replace").decode().replace("\0", " ")
