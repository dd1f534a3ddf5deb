"""`GET /api/fleet`: condition of all kits of a workspace, for callers with read access."""

from __future__ import annotations

from collections.abc import Callable

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.query import refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access.authentication import Authentication
from fieldagent.hub.access.caller import Caller, Purpose
from fieldagent.hub.fleet import view
from fieldagent.hub.store.contract import Store


class FleetApi:
    """Route of the fleet. `clock` returns Unix time."""

    def __init__(
        self, store: Store, authentication: Authentication, *, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._clock = clock
        self._judge = authentication.judge(Purpose.READ)

    def make_routes(self) -> list[Route]:
        """Return the route `GET /api/fleet`."""
        return [Route("GET", "/api/fleet", self.answer_fleet, judge=self._judge)]

    async def answer_fleet(self, request: Request, caller: Caller) -> Response:
        """Return the condition of each kit, and its differences from the other kits."""
        refuse_others(request, ())
        return make_json_response(
            await self._store.read(
                lambda db: view.describe_fleet(db, caller.workspace, self._clock())
            )
        )
