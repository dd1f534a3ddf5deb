"""What an administrator looks through: the audit of the workspace."""

from __future__ import annotations

from fieldagent.http.message import Request, Response
from fieldagent.http.query import page, refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub import audit
from fieldagent.hub.administration.acts import Acts, place
from fieldagent.hub.caller import Caller


class RecordsApi:
    def __init__(self, acts: Acts) -> None:
        self._acts = acts

    def routes(self) -> list[Route]:
        return [self._acts.route("GET", "/api/audit", self.audit)]

    async def audit(self, request: Request, caller: Caller) -> Response:
        refuse_others(request, ("before", "limit"))
        before, limit = place(request)
        found, following = await self._acts.store.read(
            lambda db: audit.listing(db, caller.workspace, before, limit)
        )
        return page(request, {"audit": found}, "before", following)
