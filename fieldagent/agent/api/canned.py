"""`GET /api/messages/canned`: lists the frequent messages in the setting `canned-messages`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.query import refuse_others
from fieldagent.http.routes import Route


def make_routes(messages: Sequence[str]) -> list[Route]:
    """Return the route that the page uses for canned messages."""
    return [Route("GET", "/api/messages/canned", partial(_list_canned, messages))]


async def _list_canned(messages: Sequence[str], request: Request) -> Response:
    refuse_others(request, ())
    return make_json_response({"messages": list(messages)})
