"""API for the audit log of a workspace, and for dead letters of its devices."""

from __future__ import annotations

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.query import make_page, read_integer, refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access.bodies import make_not_found, read_id
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.administration.acts import AdministrationContext, read_place
from fieldagent.hub.field import dead_letters, kept_letters
from fieldagent.hub.field.mobile_originated import MobileOriginatedReceiver
from fieldagent.hub.records import audit
from fieldagent.hub.store.contract import Db

LETTERS_LISTED, LETTERS_LISTED_MAX = 50, 100


class RecordsApi:
    def __init__(
        self, acts: AdministrationContext, mobile_originated: MobileOriginatedReceiver
    ) -> None:
        self._acts = acts
        self._mobile_originated = mobile_originated

    def make_routes(self) -> list[Route]:
        """Return the routes for the audit log and dead letters. Only administrators can use
        them.
        """
        route = self._acts.route
        return [
            route("GET", "/api/audit", self.audit),
            route("GET", "/api/dead-letters", self.answer_letters),
            route("DELETE", "/api/dead-letters/{id}", self.discard),
            route("POST", "/api/dead-letters/replay", self.replay),
        ]

    async def audit(self, request: Request, caller: Caller) -> Response:
        """Return a page of the workspace's audit log, newest first."""
        refuse_others(request, ("before", "limit"))
        before, limit = read_place(request)
        lines, next_line = await self._acts.store.read(
            lambda db: audit.list_page(db, caller.workspace, before, limit)
        )
        return make_page(request, {"audit": lines}, "before", next_line)

    async def answer_letters(self, request: Request, caller: Caller) -> Response:
        """Return a page of dead letters. Letters from an IMEI without a device are not included.
        Only the operator on the hub's machine sees them.
        """
        refuse_others(request, ("before", "limit"))
        before, _ = read_place(request)
        limit = read_integer(request, "limit", LETTERS_LISTED, range(1, LETTERS_LISTED_MAX + 1))
        rows = await self._acts.store.read(
            lambda db: dead_letters.list_workspace_letters(db, caller.workspace, before, limit + 1)
        )
        next_id = rows[limit - 1]["id"] if len(rows) > limit else None
        return make_page(request, {"deadLetters": rows[:limit]}, "before", next_id)

    async def discard(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Delete a dead letter permanently, and respond with status 204. Raises Problem 404 if the
        letter is of another workspace.
        """
        refuse_others(request, ())

        def discard_letter(db: Db, now: float) -> None:
            letter = read_id(id)
            if not dead_letters.is_of_workspace(db, caller.workspace, letter):
                raise make_not_found("dead letter", id)
            actor, workspace = str(caller.member), caller.workspace
            dead_letters.discard_letter(db, letter, workspace=workspace, now=now, actor=actor)

        await self._acts.carry_out(caller, discard_letter)
        return Response(204)

    async def replay(self, request: Request, caller: Caller) -> Response:
        """Process the dead letters of the workspace's devices again. Those that the hub can use now
        are accepted.
        """
        refuse_others(request, ())

        def replay_letter(db: Db, now: float) -> int:
            devices = dead_letters.list_devices_with_letters(db, caller.workspace)
            accepted_count = kept_letters.accept_letters(db, self._mobile_originated, devices)
            audit.write_line(
                db,
                caller.workspace,
                str(caller.member),
                "dead-letter replay",
                str(accepted_count),
                now,
            )
            return accepted_count

        return make_json_response(
            {"deadLettersTaken": await self._acts.carry_out(caller, replay_letter)}
        )
