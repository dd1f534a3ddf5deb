"""API for dispatchers on the watch at the desk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fieldagent.extensions.desk.hub import shifts
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.query import refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access.authentication import Authentication
from fieldagent.hub.access.bodies import read_body
from fieldagent.hub.access.caller import Caller, Purpose
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.api.sos_api import HAND_OVER_FIELDS, read_note
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.reading import Field, read_seconds, read_text

TAKING = {"seconds": Field(read_seconds, "seconds", required=True)}
ENDING = {"note": Field(read_text, "note")}

WatchAction = Callable[[Db, Caller, dict[str, Any], float], None]
"""Function that applies an action of a dispatcher to the watch. Raises Refused if the watch does
not allow the action."""


class WatchApi:
    """Routes of the watch. `clock` returns Unix time."""

    def __init__(
        self, store: Store, authentication: Authentication, *, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._clock = clock
        self._judge = authentication.judge

    def make_routes(self) -> list[Route]:
        """Return the routes of the watch. The scope READ is needed to see the watch. The scope
        ACKNOWLEDGE is needed to take it, hand it over and end it.
        """
        answer = partial(Route, "POST", judge=self._judge(Purpose.ACKNOWLEDGE))
        return [
            Route("GET", "/api/watch", self.answer_state, judge=self._judge(Purpose.READ)),
            answer("/api/watch/take", partial(self.carry_out, TAKING, _take_watch)),
            answer(
                "/api/watch/hand-over", partial(self.carry_out, HAND_OVER_FIELDS, _ask_dispatcher)
            ),
            answer("/api/watch/end", partial(self.carry_out, ENDING, _end_watch)),
        ]

    async def answer_state(self, request: Request, caller: Caller) -> Response:
        refuse_others(request, ())
        answer = await self._store.read(
            lambda db: shifts.describe_watch(db, caller.workspace, self._clock())
        )
        return make_json_response(answer)

    async def carry_out(
        self, members: dict[str, Field], operation: WatchAction, request: Request, caller: Caller
    ) -> Response:
        """Apply an action and return the new state. Raises Problem 409 if the action is refused."""
        body = read_body(request, members)
        body["note"] = read_note(body)

        def carry_out(db: Db) -> dict[str, Any] | Problem:
            now = self._clock()
            try:
                operation(db, caller, body, now)
            except Refused as refused:
                return Problem(409, str(refused))
            return shifts.describe_watch(db, caller.workspace, now)

        answer = await self._store.commit(carry_out)
        if isinstance(answer, Problem):
            raise answer
        return make_json_response(answer)


def _take_watch(db: Db, caller: Caller, body: dict[str, Any], now: float) -> None:
    shifts.take_watch(db, caller.workspace, caller.member, body["seconds"], now)


def _ask_dispatcher(db: Db, caller: Caller, body: dict[str, Any], now: float) -> None:
    shifts.hand_over(db, caller.workspace, caller.member, int(body["to"]), body["note"], now)


def _end_watch(db: Db, caller: Caller, body: dict[str, Any], now: float) -> None:
    shifts.end_watch(db, caller.workspace, caller.member, body["note"], now)
